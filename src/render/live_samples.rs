//! Heaps built by hand, for the tests of what shows them.

use super::sample_parts;
use crate::model::heap::{Branch, Buffer, Category, Class, Device, Heap, SCHEMA};
use crate::model::report::{Extents, Location, Process};

const MIB: u64 = 1 << 20;

/// Adds the branch at the end of some steps, each its reference and what that leads to.
fn grow(heap: &mut Heap, steps: &[(&str, &str)]) -> u32 {
    let mut parent = None;
    for &(edge, label) in steps {
        let is = |branch: &Branch| {
            branch.parent == parent && branch.edge == edge && branch.label == label
        };
        let known = heap.branches.iter().position(is);
        parent = Some(known.unwrap_or_else(|| {
            heap.branches.push(Branch {
                parent,
                edge: edge.to_owned(),
                label: label.to_owned(),
                location: None,
                retained: Some([0; 2]),
            });
            heap.branches.len() - 1
        }) as u32);
    }
    parent.unwrap_or(0)
}

/// Adds a piece of memory that the owner two steps from the root keeps alone.
fn hold(heap: &mut Heap, steps: &[(&str, &str)], bytes: u64, category: Category) {
    let branch = grow(heap, steps);
    let owner = grow(heap, &steps[..steps.len().min(2)]);
    if let Some([device, _]) = &mut heap.branches[owner as usize].retained {
        *device += bytes;
    }
    let words: Vec<String> = steps
        .iter()
        .map(|(edge, label)| format!("{edge} ({label})"))
        .collect();
    heap.buffers.push(Buffer {
        bytes,
        device: "cuda:0".to_owned(),
        dtype: Some("float32".to_owned()),
        shape: Some(Extents(vec![bytes / 4])),
        type_name: "torch.Tensor".to_owned(),
        holders: 1,
        owner: words.join(" → "),
        first_owner: words.into_iter().take(2).collect::<Vec<_>>().join(" → "),
        category,
        branch,
        alone: true,
        by_collection: false,
        ..Buffer::default()
    });
}

fn empty() -> Heap {
    Heap {
        schema: SCHEMA,
        time: 1_790_000_000.25,
        process: sample_parts::report(vec![], 0).process,
        ..Heap::default()
    }
}

/// A training program with a model, its optimizer and a kept loss.
pub fn training() -> Heap {
    let mut heap = empty();
    let main = ("", "module `__main__`");
    let model = (".model", "Net");
    for (layer, mib) in [("[0]", 8), ("[1]", 4)] {
        let weight = [main, model, (layer, "Linear"), (".weight", "Parameter")];
        hold(&mut heap, &weight, mib * MIB, Category::Parameter);
        let gradient = [&weight[..], &[(".grad", "Tensor")]].concat();
        hold(&mut heap, &gradient, mib * MIB, Category::Gradient);
        for state in ["['exp_avg']", "['exp_avg_sq']"] {
            let steps = [
                main,
                (".optimizer", "Adam"),
                (".state", "dict"),
                (layer, "dict"),
                (state, "Tensor"),
            ];
            hold(&mut heap, &steps, mib * MIB, Category::OptimizerState);
        }
    }
    for index in ["[0]", "[1]", "[2]"] {
        let loss = [main, (".history", "list, 3 items"), (index, "Tensor")];
        hold(&mut heap, &loss, 512, Category::Other);
        let saved = [
            &loss[..],
            &[(".grad_fn", "SumBackward0"), ("._saved_self", "Tensor")],
        ]
        .concat();
        hold(&mut heap, &saved, 6 * MIB, Category::Activation);
    }
    let held = [("", "held from C or C++"), ("", "Tensor")];
    hold(&mut heap, &held, 3 * MIB, Category::Input);
    heap.branches[0].location = Some(Location {
        file: "train.py".to_owned(),
        line: 7,
    });
    heap.buffers[0].also = vec!["module `__main__` → `optimizer` (Adam) → Parameter".to_owned()];
    heap.buffers[1].alone = false;
    heap.classes = vec![Class {
        name: "Net".to_owned(),
        objects: 1,
        device_bytes: 24 * MIB,
        host_bytes: 0,
    }];
    heap.devices = vec![Device {
        name: "cuda:0".to_owned(),
        visible: heap.device_bytes(),
        allocated: Some(heap.device_bytes() + 5 * MIB),
        reserved: Some(100 * MIB),
    }];
    heap.objects = 261_427;
    heap.references = 595_651;
    heap.pause_ms = 172.0;
    heap
}

/// A list of this many losses, each with its autograd graph.
pub fn kept_losses(count: usize) -> Heap {
    let mut heap = empty();
    let history = [("", "module `train`"), (".history", "list")];
    grow(&mut heap, &history);
    let list = 1;
    for index in 0..count {
        let loss = heap.branches.len() as u32;
        for (parent, edge, label) in [
            (list, format!("[{index}]"), "Tensor"),
            (loss, ".grad_fn".to_owned(), "SumBackward0"),
        ] {
            heap.branches.push(Branch {
                parent: Some(parent),
                edge,
                label: label.to_owned(),
                ..Branch::default()
            });
        }
        heap.buffers.push(Buffer {
            bytes: 1000 + index as u64 % 7,
            device: "cuda:0".to_owned(),
            category: Category::Activation,
            branch: loss + 1,
            ..Buffer::default()
        });
    }
    heap
}

/// All text hostile.
pub fn hostile() -> Heap {
    let text = "</script></svg><img src=x onerror=alert(1)><!--\u{202e}\u{1b}[2J\u{0}`\"'&";
    let mut heap = empty();
    let steps = [("", text), (text, text), (text, text)];
    hold(&mut heap, &steps, MIB, Category::Other);
    heap.buffers[0].dtype = Some(text.to_owned());
    heap.buffers[0].device = text.to_owned();
    heap.buffers[0].also = vec![text.to_owned()];
    heap.branches[0].location = Some(Location {
        file: text.to_owned(),
        line: 1,
    });
    heap.classes = vec![Class {
        name: text.to_owned(),
        objects: 1,
        ..Class::default()
    }];
    heap.devices = vec![Device {
        name: text.to_owned(),
        allocated: Some(1),
        ..Device::default()
    }];
    heap.notes = vec![text.to_owned()];
    heap.process = Process {
        host: text.to_owned(),
        program: text.to_owned(),
        frameworks: vec![(text.to_owned(), text.to_owned())],
        ..Process::default()
    };
    heap
}

/// A heap with these branches, each below one before it, and these buffers: branch, bytes, category,
/// and whether on a device.
pub fn random(parents: &[usize], buffers: &[(usize, u64, usize, bool)]) -> Heap {
    let branch = |(index, parent): (usize, &usize)| Branch {
        parent: (*parent < index).then_some(*parent as u32),
        edge: format!("[{index}]"),
        ..Branch::default()
    };
    let buffer = |&(branch, bytes, category, device): &(usize, u64, usize, bool)| Buffer {
        bytes,
        branch: (branch % parents.len()) as u32,
        category: Category::ALL[category],
        device: if device { "cuda:0" } else { "cpu" }.to_owned(),
        ..Buffer::default()
    };
    Heap {
        branches: parents.iter().enumerate().map(branch).collect(),
        buffers: buffers.iter().map(buffer).collect(),
        ..Heap::default()
    }
}
