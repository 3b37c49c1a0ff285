//! Reports built by hand, for the tests of the renderings.

pub use super::sample_parts::*;
use crate::model::report::*;

/// What the hostile report tries to put at the beginning of a line.
pub const FORGED_LINE: &str = "LEAK 7 of 7: forged";

/// A callback that closes over its owner, the example of PyTorch's announcement.
pub fn callback() -> Report {
    let owner = "AwaitableTensorWithViewCallBack object";
    let lambda = "function AwaitableTensorWithViewCallBack.__init__.<locals>.<lambda>";
    let graph = Graph {
        nodes: vec![
            node(
                NodeKind::Object,
                "awaitable.AwaitableTensorWithViewCallBack",
                owner,
            )
            .at("train/awaitable.py", 20)
            .cyclic(),
            node(NodeKind::Function, "function", lambda)
                .at("train/awaitable.py", 31)
                .cyclic(),
            node(
                NodeKind::Object,
                "awaitable.AwaitableTensor",
                "AwaitableTensor object",
            )
            .at("train/awaitable.py", 4),
            node(NodeKind::Buffer, "torch.Tensor", "torch.Tensor").holding(0),
            node(
                NodeKind::Class,
                "type",
                "class AwaitableTensorWithViewCallBack",
            )
            .at("train/awaitable.py", 20),
        ],
        edges: vec![
            edge(0, 1, "._callback", EdgeRole::Cut),
            edge(1, 0, "closure variable 'self'", EdgeRole::Cycle),
            edge(0, 2, "._tensor_awaitable", EdgeRole::Path),
            edge(2, 3, "._tensor", EdgeRole::Path),
            edge(0, 4, ".__class__", EdgeRole::Other),
        ],
        omitted: 3,
        ..Graph::default()
    };
    let leak = Leak {
        signature: "3f8a1c0e9b7d2465".into(),
        pattern: Some("closure-captures-owner".into()),
        summary: "AwaitableTensorWithViewCallBack._callback → <lambda>.self → \
                  AwaitableTensorWithViewCallBack"
            .into(),
        count: 1,
        bytes_held: 64 << 20,
        bytes_freed: Some(64 << 20),
        objects: 2,
        cycle: steps(&graph, &[0, 1]),
        buffers: vec![Buffer {
            node: Some(3),
            path: vec!["._tensor_awaitable".into(), "._tensor".into()],
            path_nodes: vec![2, 3],
            ..tensor(64 << 20, &[4096, 4096])
        }],
        cuts: vec![Cut {
            owner: owner.into(),
            edge: "._callback".into(),
            location: at("train/awaitable.py", 31),
            proven: true,
            target: 1,
            ..Cut::default()
        }],
        advice: Advice {
            text: "The lambda stored as `_callback` closes over `self`, which stores the lambda: \
                   neither can go before the other. Let the lambda take what it needs, not `self`."
                .into(),
            before: Some("self._callback = lambda: self._view(self._tensor_awaitable)".into()),
            after: Some(
                "awaitable = self._tensor_awaitable\nself._callback = lambda: view(awaitable)"
                    .into(),
            ),
        },
        graph,
        ..Leak::default()
    };
    report(vec![leak], 9)
}

/// A leak that each of some ranks saw in ten collections.
pub fn seen_on_ranks(ranks: u32) -> Report {
    let mut report = callback();
    let seen = |index: u32| Occurrence {
        time: 1_790_000_000.0 + f64::from(index),
        collections: 1,
        looked: false,
        count: 1,
        bytes: (1 + u64::from(index % 7)) << 20,
        pause_us: 1000 * u64::from(1 + index % 5),
        host: "node17".into(),
        pid: 4000 + index % ranks,
        rank: Some(index % ranks),
    };
    report.leaks[0].occurrences = (0..10 * ranks).map(seen).collect();
    report
}

/// An object whose lambda captures it, with the dictionary, closure tuple and cell on the way.
pub fn through_dictionary() -> Report {
    let mut report = callback();
    let leak = &mut report.leaks[0];
    let nodes = &mut leak.graph.nodes;
    nodes.swap(2, 3);
    nodes.truncate(3);
    let hop = |object: u32, label: &str, into: &str, onwards: &str| Hop {
        object,
        label: label.into(),
        into: into.into(),
        onwards: onwards.into(),
    };
    let mut edges = vec![
        edge(0, 1, "._callback", EdgeRole::Cut),
        edge(1, 0, "closure variable 'self'", EdgeRole::Cycle),
        edge(0, 2, ".tensor", EdgeRole::Path),
    ];
    edges[0].through = vec![hop(100, "dict", ".__dict__", "['callback']")];
    edges[1].through = vec![
        hop(101, "tuple", ".__closure__", "[0]"),
        hop(102, "cell", "[0]", ".cell_contents"),
    ];
    edges[2].through = vec![hop(100, "dict", ".__dict__", "['tensor']")];
    leak.graph.edges = edges;
    leak.graph.omitted = 0;
    leak.buffers[0].node = Some(2);
    leak.buffers[0].path = vec![".tensor".into()];
    leak.buffers[0].path_nodes = vec![2];
    report
}

/// A list in a cycle that holds this many tensors of one MiB.
pub fn many_buffers(count: u32) -> Report {
    let mut report = callback();
    let leak = &mut report.leaks[0];
    leak.graph.nodes.truncate(2);
    leak.graph.edges.truncate(2);
    leak.graph.omitted = 0;
    leak.buffers.clear();
    for index in 0..count {
        let place = index + 2;
        leak.graph
            .nodes
            .push(node(NodeKind::Buffer, "torch.Tensor", "torch.Tensor").holding(index));
        leak.graph
            .edges
            .push(edge(0, place, &format!("[{index}]"), EdgeRole::Path));
        leak.buffers.push(Buffer {
            node: Some(place),
            path: vec![format!("[{index}]")],
            path_nodes: vec![place],
            pointer: u64::from(index) << 20,
            ..tensor(1 << 20, &[262_144])
        });
    }
    report
}

/// Two nodes that know each other, held three times over, and an exception that keeps its frame;
/// of the second no cut is proven.
pub fn linked_nodes_and_exception() -> Report {
    let mut report = report(vec![linked_nodes(), exception()], 1_204);
    report.collection.trigger = "find".into();
    report.collection.generation = None;
    report.notes = vec!["The sizes of 2 buffers on cuda:1 could not be read.".into()];
    report
}

fn linked_nodes() -> Leak {
    let graph = Graph {
        nodes: vec![
            node(NodeKind::Object, "model.Node", "Node object")
                .at("model.py", 7)
                .cyclic(),
            node(NodeKind::Object, "model.Node", "Node object")
                .at("model.py", 7)
                .cyclic(),
            node(
                NodeKind::Buffer,
                "torch.nn.parameter.Parameter",
                "Parameter",
            )
            .holding(0),
            node(NodeKind::Buffer, "torch.UntypedStorage", "UntypedStorage").holding(1),
        ],
        edges: vec![
            edge(0, 1, ".next", EdgeRole::Cycle),
            edge(1, 0, ".previous", EdgeRole::Cut),
            edge(0, 2, ".weight", EdgeRole::Path),
            edge(1, 3, ".storage", EdgeRole::Path),
        ],
        ..Graph::default()
    };
    Leak {
        signature: "00c0ffee00c0ffee".into(),
        pattern: Some("both-ways".into()),
        summary: "Node.next → Node.previous → Node".into(),
        count: 3,
        bytes_held: 3 * ((1 << 30) + 512),
        objects: 6,
        cycle: steps(&graph, &[0, 1]),
        buffers: vec![
            Buffer {
                node: Some(2),
                type_name: "torch.nn.parameter.Parameter".into(),
                path: vec![".weight".into()],
                path_nodes: vec![2],
                ..tensor(1 << 30, &[16384, 16384])
            },
            Buffer {
                node: Some(3),
                type_name: "torch.UntypedStorage".into(),
                dtype: None,
                shape: None,
                confirmed: false,
                from_step: 1,
                path: vec![".storage".into()],
                path_nodes: vec![3],
                ..tensor(512, &[])
            },
        ],
        buffers_omitted: 4,
        cuts: vec![Cut {
            owner: "Node object".into(),
            edge: ".previous".into(),
            location: at("model.py", 7),
            proven: true,
            source: 1,
            ..Cut::default()
        }],
        advice: Advice {
            text: "Keep a weak reference in the direction that does not own.".into(),
            before: Some("self.previous = previous".into()),
            after: Some("self.previous = weakref.ref(previous)".into()),
        },
        graph,
        ..Leak::default()
    }
}

fn exception() -> Leak {
    let graph = Graph {
        nodes: vec![
            node(
                NodeKind::Frame,
                "RuntimeError",
                "RuntimeError('out of range')",
            )
            .cyclic(),
            node(NodeKind::Frame, "traceback", "traceback")
                .at("evaluate.py", 44)
                .cyclic(),
            node(NodeKind::Frame, "frame", "frame of run_batch")
                .at("evaluate.py", 40)
                .cyclic(),
            node(NodeKind::Container, "dict", "dict with 3 items").fact("length", "3"),
            node(NodeKind::Buffer, "torch.Tensor", "torch.Tensor").holding(0),
        ],
        edges: vec![
            edge(0, 1, ".__traceback__", EdgeRole::Cycle),
            edge(1, 2, ".tb_frame", EdgeRole::Cycle),
            edge(2, 0, "local 'error'", EdgeRole::Cut),
            edge(2, 3, "local 'batch'", EdgeRole::Path),
            edge(3, 4, "['images']", EdgeRole::Path),
        ],
        ..Graph::default()
    };
    Leak {
        signature: "badc0de5badc0de5".into(),
        summary: "RuntimeError.__traceback__ → traceback.tb_frame → run_batch local 'error'".into(),
        count: 1,
        bytes_held: 12 << 20,
        bytes_freed: Some(200 << 20),
        objects: 3,
        cycle: steps(&graph, &[0, 1, 2]),
        buffers: vec![Buffer {
            node: Some(4),
            from_step: 2,
            path: vec!["local 'batch'".into(), "['images']".into()],
            path_nodes: vec![3, 4],
            ..tensor(12 << 20, &[16, 3, 256, 256])
        }],
        cuts: vec![Cut {
            owner: "frame of run_batch".into(),
            edge: "local 'error'".into(),
            location: at("evaluate.py", 44),
            source: 2,
            ..Cut::default()
        }],
        advice: Advice {
            text: "The frame keeps the exception it caught in `error`.".into(),
            ..Advice::default()
        },
        graph,
        ..Leak::default()
    }
}

/// A ring of a million objects, of which four steps at either end are listed.
pub fn million_ring() -> Report {
    let count = 8;
    let nodes = (0..count)
        .map(|_| {
            node(NodeKind::Object, "ring.Link", "Link object")
                .at("ring.py", 3)
                .cyclic()
        })
        .chain([node(NodeKind::Buffer, "torch.Tensor", "torch.Tensor").holding(0)])
        .collect();
    let mut edges: Vec<Edge> = (0..count)
        .filter(|i| *i != count / 2 - 1)
        .map(|i| edge(i, (i + 1) % count, ".next", EdgeRole::Cycle))
        .collect();
    edges.push(edge(2, count, ".payload", EdgeRole::Path));
    let graph = Graph {
        nodes,
        edges,
        omitted: 999_992,
        ..Graph::default()
    };
    let leak = Leak {
        signature: "1000000000000001".into(),
        summary: "Link.next → Link.next → … → Link".into(),
        count: 1,
        bytes_held: 2 << 20,
        objects: 1_000_000,
        cycle: steps(&graph, &[0, 1, 2, 3, 4, 5, 6, 7]),
        cycle_omitted: 999_992,
        buffers: vec![Buffer {
            node: Some(count),
            from_step: 2,
            path: vec![".payload".into()],
            path_nodes: vec![count],
            ..tensor(2 << 20, &[1024, 512])
        }],
        graph,
        ..Leak::default()
    };
    report(vec![leak], 1_000_000)
}

/// Garbage, but no device memory in it.
pub fn no_leaks() -> Report {
    report(vec![], 37)
}

/// Every string tries to break out of the text, the drawing or the page it is put in, and is long.
pub fn hostile() -> Report {
    hostile_and_long(if cfg!(miri) { 400 } else { 10_000 })
}

/// Like [`hostile`], with each string lengthened by this many characters.
pub fn hostile_and_long(more: usize) -> Report {
    let evil = format!(
        "</script><img src=x onerror=alert(1)>\"'`\\\\N\\\"}}{{|<!--]]>&amp;\n{FORGED_LINE}\r\n\
         \u{1b}[2J\u{9b}31m\u{202e}drow\u{2066}\u{2028}\u{0}\u{ffff}模型{}",
        "x".repeat(more)
    );
    let mut report = linked_nodes_and_exception();
    report.tool = evil.clone();
    report.time = f64::MAX;
    report.notes = vec![evil.clone()];
    report.collection.trigger = evil.clone();
    report.process.host = evil.clone();
    report.process.python = evil.clone();
    report.process.program = evil.clone();
    report.process.frameworks = vec![(evil.clone(), evil.clone())];
    report.process.gpus = vec![evil.clone()];
    for leak in &mut report.leaks {
        leak.signature = evil.clone();
        leak.pattern = Some(evil.clone());
        leak.summary = evil.clone();
        leak.advice = Advice {
            text: evil.clone(),
            before: Some(evil.clone()),
            after: Some(evil.clone()),
        };
        leak.occurrences = vec![Occurrence {
            time: f64::MAX,
            bytes: u64::MAX,
            host: evil.clone(),
            ..Occurrence::default()
        }];
        leak.library = Some(Library {
            name: evil.clone(),
            version: Some(evil.clone()),
            your_line: at(&evil, 1),
        });
        leak.known = Some(Known {
            name: evil.clone(),
            library: evil.clone(),
            versions: vec![evil.clone()],
            fixed_in: Some(evil.clone()),
            link: Some(evil.clone()),
            remedy: evil.clone(),
        });
        for step in &mut leak.cycle {
            step.type_name = evil.clone();
            step.label = evil.clone();
            step.edge = evil.clone();
            step.location = at(&evil, u32::MAX);
        }
        for buffer in &mut leak.buffers {
            buffer.type_name = evil.clone();
            buffer.device = evil.clone();
            buffer.dtype = Some(evil.clone());
            buffer.path.fill(evil.clone());
        }
        for cut in &mut leak.cuts {
            cut.owner = evil.clone();
            cut.edge = evil.clone();
            cut.location = at(&evil, 0);
        }
        for node in &mut leak.graph.nodes {
            node.type_name = evil.clone();
            node.label = evil.clone();
            node.location = at(&evil, 1);
            node.details = vec![(evil.clone(), evil.clone())];
        }
        for edge in &mut leak.graph.edges {
            edge.name = evil.clone();
            edge.through = vec![Hop {
                object: u32::MAX,
                label: evil.clone(),
                into: evil.clone(),
                onwards: evil.clone(),
            }];
        }
    }
    report
}

/// Every index points outside what it indexes, as in a file that somebody edited.
pub fn dangling() -> Report {
    let mut report = linked_nodes_and_exception();
    for leak in &mut report.leaks {
        for step in &mut leak.cycle {
            step.node = Some(u32::MAX);
        }
        for buffer in &mut leak.buffers {
            buffer.node = Some(99);
            buffer.from_step = 99;
            buffer.path_nodes = vec![99];
        }
        for cut in &mut leak.cuts {
            (cut.source, cut.target) = (99, u32::MAX);
        }
        leak.graph.edges.push(edge(99, 0, ".x", EdgeRole::Path));
        leak.graph
            .edges
            .push(edge(0, u32::MAX, ".y", EdgeRole::Cut));
        for node in &mut leak.graph.nodes {
            node.buffer = Some(99);
        }
    }
    report
}

/// A two-step cycle around a graph of `count` objects with dense references among them: layers of
/// ten, each object referring to the whole next layer, and back, and to itself.
pub fn dense(count: u32) -> Report {
    let mut report = callback();
    let graph = &mut report.leaks[0].graph;
    let first = graph.nodes.len() as u32;
    for index in first..count {
        graph
            .nodes
            .push(node(NodeKind::Container, "list", &format!("list {index}")));
        let layer = (index - first) / 10;
        for previous in 0..10 {
            let from = if layer == 0 {
                0
            } else {
                first + (layer - 1) * 10 + previous
            };
            graph
                .edges
                .push(edge(from, index, &format!("[{previous}]"), EdgeRole::Other));
        }
        graph
            .edges
            .push(edge(index, index, "[10]", EdgeRole::Other));
        graph.edges.push(edge(index, 1, "[11]", EdgeRole::Other));
    }
    report
}
