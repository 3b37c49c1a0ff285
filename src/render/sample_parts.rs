//! What the reports built by hand are built of.

use std::collections::HashMap;

use crate::model::report::*;

pub fn report(leaks: Vec<Leak>, garbage_objects: u64) -> Report {
    Report {
        schema: SCHEMA,
        tool: "cyclescope 0.1.0".into(),
        time: 1_790_000_000.25,
        process: Process {
            host: "node17".into(),
            pid: 4242,
            rank: Some(3),
            world_size: None,
            python: "3.12.1".into(),
            program: "train.py".into(),
            frameworks: vec![
                ("torch".into(), "2.9.1".into()),
                ("numpy".into(), "2.3.4".into()),
            ],
            gpus: vec!["NVIDIA H200".into()],
        },
        collection: Collection {
            trigger: "watch".into(),
            generation: Some(2),
            garbage_objects,
            pause_us: 1_240,
            importing: None,
            devices: Vec::new(),
        },
        leaks,
        left_out: 0,
        notes: vec![],
        epochs: HashMap::new(),
        processes: vec![],
        earlier: None,
    }
}

pub fn node(kind: NodeKind, type_name: &str, label: &str) -> Node {
    Node {
        kind,
        type_name: type_name.into(),
        label: label.into(),
        location: None,
        buffer: None,
        in_cycle: false,
        details: vec![],
    }
}

impl Node {
    pub fn at(self, file: &str, line: u32) -> Node {
        Node {
            location: at(file, line),
            ..self
        }
    }

    pub fn cyclic(self) -> Node {
        Node {
            in_cycle: true,
            ..self
        }
    }

    pub fn holding(self, buffer: u32) -> Node {
        Node {
            buffer: Some(buffer),
            ..self
        }
    }

    pub fn fact(mut self, name: &str, value: &str) -> Node {
        self.details.push((name.into(), value.into()));
        self
    }
}

pub fn edge(from: u32, to: u32, name: &str, role: EdgeRole) -> Edge {
    Edge {
        from,
        to,
        name: name.into(),
        role,
        through: vec![],
    }
}

pub fn at(file: &str, line: u32) -> Option<Location> {
    Some(Location {
        file: file.into(),
        line,
    })
}

/// The steps through these nodes, by the edges between them.
pub fn steps(graph: &Graph, nodes: &[u32]) -> Vec<Step> {
    let next = nodes.iter().cycle().skip(1);
    let step = |(&from, &to): (&u32, &u32)| {
        let node = &graph.nodes[from as usize];
        let edge = graph
            .edges
            .iter()
            .find(|edge| edge.from == from && edge.to == to);
        Step {
            node: Some(from),
            type_name: node.type_name.clone(),
            label: node.label.clone(),
            location: node.location.clone(),
            edge: edge.map_or(".next", |edge| &edge.name).to_owned(),
            allocated_at: None,
        }
    };
    nodes.iter().zip(next).map(step).collect()
}

/// A confirmed float32 tensor on the first device, to be placed by the caller.
pub fn tensor(bytes: u64, shape: &[u64]) -> Buffer {
    Buffer {
        node: None,
        type_name: "torch.Tensor".into(),
        pointer: 0x7f3c_0000_0000,
        bytes,
        device: "cuda:0".into(),
        dtype: Some("float32".into()),
        shape: Some(Extents(shape.to_vec())),
        confirmed: true,
        from_step: 0,
        path: vec![],
        path_nodes: vec![],
        allocated_at: None,
        allocation: vec![],
        has_grad_fn: false,
        holders: 1,
        kept_by: None,
        lent: false,
    }
}
