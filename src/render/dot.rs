//! The report as a Graphviz graph, for those who want to lay out or restyle it themselves.

use graphviz_rust::dot_structures::{
    Attribute, Edge as DotEdge, EdgeTy, Graph as DotGraph, GraphAttributes, Id, Node as DotNode,
    NodeId, Stmt, Subgraph, Vertex,
};
use graphviz_rust::printer::{DotPrinter, PrinterContext};

use crate::model::device_memory::on_device;
use crate::model::report::{Edge, EdgeRole, Leak, Node, NodeKind, Report};
use crate::model::words::{counted, element_type, human_bytes, name, short_location};

/// Names longer than this are shortened in their middle.
const NAME: usize = 60;

/// The report in the DOT language: one cluster a leak, holders of buffers filled, the cycle in
/// thick lines, the reference to remove dashed in red.
///
/// The text is safe inside an HTML page as well: it never contains `</`.
pub fn dot(report: &Report) -> String {
    let mut stmts = vec![
        Stmt::GAttribute(GraphAttributes::Graph(vec![
            attribute("fontname", "Helvetica"),
            attribute("rankdir", "LR"),
            attribute("nodesep", "0.4"),
            attribute("ranksep", "0.7"),
            attribute("tooltip", " "),
        ])),
        Stmt::GAttribute(GraphAttributes::Node(vec![
            attribute("shape", "box"),
            attribute("style", "rounded,filled"),
            attribute("fontname", "Helvetica"),
            attribute("fontsize", "11"),
        ])),
        Stmt::GAttribute(GraphAttributes::Edge(vec![
            attribute("fontname", "Helvetica"),
            attribute("fontsize", "10"),
        ])),
    ];
    if report.leaks.is_empty() {
        let node = vec![
            attribute("label", "no leaks"),
            attribute("shape", "plaintext"),
        ];
        stmts.push(Stmt::Node(DotNode::new(NodeId(plain("none"), None), node)));
    }
    for (index, leak) in report.leaks.iter().enumerate() {
        stmts.push(Stmt::Subgraph(cluster(index, leak)));
    }
    let graph = DotGraph::DiGraph {
        id: plain("cyclescope"),
        strict: false,
        stmts,
    };
    graph.print(&mut PrinterContext::default()) + "\n"
}

fn cluster(index: usize, leak: &Leak) -> Subgraph {
    let nodes = &leak.graph.nodes;
    let mut stmts = vec![
        Stmt::Attribute(attribute("label", &quotable(&title(leak)))),
        Stmt::Attribute(attribute("color", "#c9ced6")),
        Stmt::Attribute(attribute("style", "rounded")),
        Stmt::Attribute(attribute("margin", "18")),
    ];
    for (number, node) in nodes.iter().enumerate() {
        let id = node_id(index, number as u32);
        stmts.push(Stmt::Node(DotNode::new(id, node_attributes(leak, node))));
    }
    for edge in &leak.graph.edges {
        if (edge.from as usize) < nodes.len() && (edge.to as usize) < nodes.len() {
            let (from, to) = (node_id(index, edge.from), node_id(index, edge.to));
            stmts.push(Stmt::Edge(DotEdge {
                ty: EdgeTy::Pair(Vertex::N(from), Vertex::N(to)),
                attributes: edge_attributes(edge),
            }));
        }
    }
    let graph = &leak.graph;
    let left_out = [
        ("more", graph.omitted, ["more object", "more objects"]),
        (
            "others",
            graph.references_omitted,
            ["more reference", "more references"],
        ),
    ];
    for (suffix, count, [one, many]) in left_out.into_iter().filter(|left| left.1 > 0) {
        let more = counted(count, one, many);
        let id = NodeId(plain(&format!("leak{index}_{suffix}")), None);
        let attributes = vec![
            attribute("label", &format!("… {more}")),
            attribute("shape", "plaintext"),
            attribute("style", ""),
            attribute("fontcolor", "#6b7280"),
        ];
        stmts.push(Stmt::Node(DotNode::new(id, attributes)));
    }
    Subgraph {
        id: plain(&format!("cluster_{index}")),
        stmts,
    }
}

fn title(leak: &Leak) -> String {
    let mut title = format!("{} held", human_bytes(leak.bytes_held));
    if leak.count > 1 {
        title += &format!(" in {}", counted(leak.count, "group", "groups"));
    }
    if let Some(pattern) = &leak.pattern {
        title += &format!(": {}", name(pattern, NAME));
    }
    format!("{title}  [{}]", name(&leak.signature, 40))
}

fn node_attributes(leak: &Leak, node: &Node) -> Vec<Attribute> {
    let mut lines = vec![name(&node.label, NAME)];
    let buffer = node
        .buffer
        .and_then(|index| leak.buffers.get(index as usize));
    if let Some(buffer) = buffer {
        lines.push(format!(
            "{} {}",
            element_type(buffer),
            on_device(&name(&buffer.device, NAME))
        ));
        lines.push(human_bytes(buffer.bytes));
    } else if let Some(location) = &node.location {
        lines.push(name(&short_location(location), NAME));
    }
    let lines: Vec<String> = lines.iter().map(|line| quotable(line)).collect();
    let (fill, line, font) = match node.kind {
        NodeKind::Buffer => ("#c44f08", "#9a3c00", "#ffffff"),
        NodeKind::Function => ("#e7f0ff", "#7c9cd6", "#111827"),
        NodeKind::Plumbing => ("#f3f4f6", "#c0c5cc", "#4b5563"),
        _ => ("#ffffff", "#8b94a3", "#111827"),
    };
    let (line, width) = if node.in_cycle {
        ("#3451d1", "2")
    } else {
        (line, "1")
    };
    let mut tooltip = name(&node.type_name, 400);
    if let Some(location) = &node.location {
        tooltip += &format!(" at {}", name(&location.to_string(), 400));
    }
    vec![
        attribute("label", &lines.join("\\n")),
        attribute("tooltip", &quotable(&tooltip)),
        attribute("fillcolor", fill),
        attribute("color", line),
        attribute("fontcolor", font),
        attribute("penwidth", width),
    ]
}

fn edge_attributes(edge: &Edge) -> Vec<Attribute> {
    let label = name(&edge.name, NAME);
    let (label, color, width) = match edge.role {
        EdgeRole::Cut => (format!("✂ {label}"), "#d6213f", "3"),
        EdgeRole::Cycle => (label, "#3451d1", "3"),
        EdgeRole::Path => (label, "#c2540a", "2"),
        EdgeRole::Other => (label, "#a3aab5", "1"),
    };
    let mut attributes = vec![
        attribute("label", &quotable(&label)),
        attribute("color", color),
        attribute(
            "fontcolor",
            if edge.role == EdgeRole::Other {
                "#6b7280"
            } else {
                color
            },
        ),
        attribute("penwidth", width),
    ];
    if edge.role == EdgeRole::Cut {
        attributes.push(attribute("style", "dashed"));
    }
    attributes
}

fn node_id(leak: usize, node: u32) -> NodeId {
    NodeId(plain(&format!("leak{leak}_node{node}")), None)
}

fn plain(id: &str) -> Id {
    Id::Plain(id.to_owned())
}

/// An attribute with its value in quotes; the value must be free of quotes or [`quotable`].
fn attribute(key: &str, value: &str) -> Attribute {
    Attribute(plain(key), Id::Escaped(format!("\"{value}\"")))
}

/// The text as it must stand in a quoted label: Graphviz reads backslash sequences such as `\N`
/// there, and HTML entities.
fn quotable(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace("</", "&lt;/")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::render::samples;

    #[test]
    fn dot_of_a_callback_cycle() {
        insta::assert_snapshot!(dot(&samples::callback()));
    }

    #[test]
    fn dot_of_two_leaks() {
        insta::assert_snapshot!(dot(&samples::linked_nodes_and_exception()));
    }

    #[test]
    fn only_the_cut_is_dashed_and_has_scissors() {
        let text = dot(&samples::callback());
        let cut: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("dashed"))
            .collect();
        assert_eq!(cut.len(), 1);
        assert!(cut[0].contains("leak0_node0 -> leak0_node1") && cut[0].contains("✂ ._callback"));
        assert_eq!(text.matches('✂').count(), 1);
    }

    #[test]
    fn strings_stay_in_their_quotes() {
        assert_eq!(
            quotable(r#"a"b\N</script>&lt;"#),
            r#"a\"b\\N&lt;/script>&amp;lt;"#
        );
        let text = dot(&samples::hostile());
        assert!(!text.contains("</"));
        assert!(
            !text
                .lines()
                .any(|line| line.starts_with(samples::FORGED_LINE))
        );
        for line in text.lines() {
            let bare = line.replace("\\\\", "").replace("\\\"", "");
            assert!(bare.matches('"').count().is_multiple_of(2), "{line}");
        }
    }

    #[test]
    fn references_to_nowhere_are_left_out() {
        let text = dot(&samples::dangling());
        assert!(!text.contains("node99") && !text.contains(&u32::MAX.to_string()));
    }

    /// Asks Graphviz itself, where it is installed.
    #[test]
    fn graphviz_reads_it() {
        for report in [
            samples::callback(),
            samples::linked_nodes_and_exception(),
            samples::million_ring(),
            samples::no_leaks(),
            samples::hostile(),
            samples::dangling(),
        ] {
            let Ok(mut child) = Command::new("dot")
                .arg("-Tsvg")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
            else {
                eprintln!("skipped: no `dot` here");
                return;
            };
            child
                .stdin
                .take()
                .unwrap()
                .write_all(dot(&report).as_bytes())
                .unwrap();
            let output = child.wait_with_output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && errors.is_empty(), "{errors}");
        }
    }
}
