//! What the memory of a device is for, for the post-mortem of a request that it could not meet.

use std::time::Instant;

use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Inspector;
use super::busy::busy;
use super::graphs::Graphs;
use super::holding::Reaching;
use super::live::{Depth, Live};
use super::purpose::{KeptTensor, Part};
use crate::device::{DeviceSelection, Frameworks};
use crate::graph::ShortestPaths;

/// Fewer tensors with graphs than these in a container are not a collection of them.
const FEW: usize = 3;
/// How many references above tensors a collection of them may be.
const LEVELS: usize = 3;
/// How many autograd functions of one pass of a model accumulate the gradient of one parameter, at most.
const USES_IN_ONE_PASS: usize = 2;

/// Pieces of memory: address and bytes.
pub type Pieces = Vec<(u64, u64)>;

/// A container of tensors with graphs.
pub struct KeptGraphs {
    pub owner: String,
    pub tensors: usize,
    /// What would be free if it kept none but its last tensor, which may be in use.
    pub freed: Pieces,
}

/// What the memory of a device is for.
#[derive(Default)]
pub struct MemoryInUse {
    pub parameters: Pieces,
    pub gradients: Pieces,
    pub optimizer_state: Pieces,
    /// Buffers of modules.
    pub module_buffers: Pieces,
    /// What no Python object holds, but an autograd graph does.
    pub saved: Pieces,
    /// What only unreachable objects hold.
    pub garbage: Pieces,
    /// All else that Python objects hold.
    pub other: Pieces,
    /// The collections of tensors that keep autograd graphs, largest first.
    pub graphs: Vec<KeptGraphs>,
    /// What the running functions use: the tensors in their local variables and on their way from one call
    /// to the next, and, if the graph behind these is of one pass of a model, what it saved.
    pub working: Pieces,
    /// What was not looked at, and why.
    pub left_out: Vec<String>,
}

impl MemoryInUse {
    /// What is in use, by what it is for; the first four are the model's.
    pub fn roles(&self) -> [(&'static str, &Pieces); 7] {
        [
            ("parameters", &self.parameters),
            ("gradients", &self.gradients),
            ("optimizer state", &self.optimizer_state),
            ("module buffers", &self.module_buffers),
            ("autograd graphs", &self.saved),
            ("garbage in cycles", &self.garbage),
            ("other tensors", &self.other),
        ]
    }
}

impl Inspector {
    /// Sorts the memory of a device that is in use, before `deadline` where that can be foreseen.
    pub fn memory_in_use(
        &self,
        py: Python<'_>,
        device: &str,
        deadline: Instant,
    ) -> PyResult<MemoryInUse> {
        let depth = match self.is_backward_running(py) {
            true => Depth::Gradients,
            false => Depth::Graphs,
        };
        let mut live = Live::take(self, py, None, depth)?;
        let ways = live.paths_with_loops(self);
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        let look = Look {
            live: &live,
            inspector: self,
            frameworks: &frameworks,
            graphs: Graphs::new(self, &frameworks, &live),
            device,
        };
        let mut found = MemoryInUse::default();
        look.sort(&ways, &mut found);
        let tensors = look.tensors_with_graphs();
        found.working = look.working_set(&tensors);
        match depth {
            Depth::Graphs => look.find_collections(&ways, &tensors, deadline, &mut found),
            Depth::Gradients => {
                let reason = "autograd graphs: a backward pass is running";
                found.left_out.push(reason.to_owned());
            }
        }
        Ok(found)
    }
}

impl Inspector {
    /// The memory of tensors and arrays that are garbage, on some devices, and which nothing in use has.
    ///
    /// # Errors
    /// As [`Inspector::find`].
    pub fn unreachable_memory(
        &self,
        py: Python<'_>,
        devices: &DeviceSelection,
    ) -> PyResult<Pieces> {
        let used = self.in_use(py)?;
        let garbage = self.unreachable(py)?;
        let frameworks = self.frameworks.try_borrow().map_err(|_| busy())?;
        let mut pieces = FxHashMap::default();
        for object in garbage.iter() {
            let verdict = frameworks.verdict_of(&object);
            for buffer in frameworks.buffers(verdict, &object, devices) {
                if !used.has(&buffer.device, buffer.pointer) {
                    pieces.insert(buffer.pointer, buffer.bytes);
                }
            }
        }
        Ok(pieces.into_iter().collect())
    }
}

struct Look<'a, 'py> {
    live: &'a Live<'py>,
    inspector: &'a Inspector,
    frameworks: &'a Frameworks,
    graphs: Graphs<'a, 'py>,
    device: &'a str,
}

impl Look<'_, '_> {
    /// Those of some pieces of memory that are on the device, each once.
    fn on_device(&self, indices: impl IntoIterator<Item = usize>) -> Pieces {
        let mut seen = FxHashSet::default();
        indices
            .into_iter()
            .filter(|index| seen.insert(*index))
            .map(|index| &self.live.buffers[index].buffer)
            .filter(|buffer| buffer.device == self.device)
            .map(|buffer| (buffer.pointer, buffer.bytes))
            .collect()
    }

    fn sort(&self, ways: &ShortestPaths, found: &mut MemoryInUse) {
        let (kept, _) = self
            .inspector
            .kept_by_modules_and_optimizers(self.frameworks, self.live);
        let mut parts: FxHashMap<usize, Part> = FxHashMap::default();
        for KeptTensor { node, part, .. } in kept {
            if let Some(index) = self.live.memory_of(node) {
                let known = parts.entry(index).or_insert(part);
                *known = part.min(*known);
            }
        }
        let mut indices: [Vec<usize>; 7] = Default::default();
        for (index, known) in self.live.buffers.iter().enumerate() {
            let role = match parts.get(&index) {
                _ if !ways.reaches(known.node) => 6,
                Some(Part::Parameter) => 0,
                Some(Part::Buffer) => 1,
                _ if known.is_gradient => 2,
                Some(Part::OptimizerState) => 3,
                None if known.holder as usize >= self.live.objects.len() => 4,
                None if self.is_of_torch(known.holder) => 5,
                None => continue,
            };
            indices[role].push(index);
        }
        [
            found.parameters,
            found.module_buffers,
            found.gradients,
            found.optimizer_state,
            found.saved,
            found.other,
            found.garbage,
        ] = indices.map(|indices| self.on_device(indices));
    }

    /// True for a tensor or storage of PyTorch's.
    fn is_of_torch(&self, node: u32) -> bool {
        self.live.object(node).is_some_and(|object| {
            let verdict = self.frameworks.verdict_of(&object);
            Frameworks::is_tensor(verdict) || Frameworks::is_storage(verdict)
        })
    }

    /// The tensors that Python sees and that are no leaves, with their functions.
    fn tensors_with_graphs(&self) -> Vec<(u32, u32)> {
        let holders = self.live.objects.holders.iter();
        holders
            .filter(|(_, verdict)| Frameworks::is_tensor(*verdict))
            .filter_map(|&(node, _)| Some((node, self.graphs.function_of(node)?)))
            .collect()
    }

    fn working_set(&self, tensors: &[(u32, u32)]) -> Pieces {
        let mut used: Vec<u32> = Vec::new();
        for (node, frame) in self.live.program_frames() {
            // The frame of a module does not hold its variables; their dictionary does.
            let names = match frame.function.as_str() {
                "<module>" => self.live.variables_of_module(node),
                _ => Some(node),
            };
            let variables = names.map_or(&[][..], |names| self.live.graph().targets(names));
            used.extend(variables.iter().copied().filter(|&it| self.is_of_torch(it)));
        }
        let functions = used
            .iter()
            .filter_map(|&node| self.graphs.function_of(node));
        let behind = self.graphs.behind(functions, usize::MAX);
        let newest = behind.iter().filter_map(|&it| self.graphs.number(it)).max();
        used.extend(
            tensors
                .iter()
                .filter(|(_, function)| self.graphs.number(*function) > newest)
                .map(|(node, _)| *node),
        );
        let functions = used
            .iter()
            .filter_map(|&node| self.graphs.function_of(node));
        let behind = self.graphs.behind(functions, usize::MAX);
        let mut uses: FxHashMap<u32, usize> = FxHashMap::default();
        for function in behind
            .iter()
            .flat_map(|&function| self.graphs.next(function))
        {
            if self.graphs.leaf(function).is_some() {
                *uses.entry(function).or_default() += 1;
            }
        }
        let is_one_pass =
            self.live.functions_are_complete && uses.values().all(|&uses| uses <= USES_IN_ONE_PASS);
        let held = used.iter().filter_map(|&node| self.live.memory_of(node));
        let saved = behind
            .iter()
            .flat_map(|&function| self.graphs.saved(function));
        self.on_device(held.chain(saved.filter(|_| is_one_pass)))
    }

    /// The containers that keep several tensors with graphs, and what only they keep.
    fn find_collections(
        &self,
        ways: &ShortestPaths,
        tensors: &[(u32, u32)],
        deadline: Instant,
        found: &mut MemoryInUse,
    ) {
        let order = self.containers(ways, tensors);
        let mut taken: FxHashSet<u32> = FxHashSet::default();
        let mut holders: Vec<Vec<u32>> = Vec::new();
        for (holder, members) in &order {
            let members: Vec<u32> = members
                .iter()
                .copied()
                .filter(|it| !taken.contains(it))
                .collect();
            if members.len() < FEW {
                continue;
            }
            if Instant::now() > deadline {
                let reason = "some collections of tensors with graphs: no time left";
                found.left_out.push(reason.to_owned());
                break;
            }
            taken.extend(members.iter());
            let mut going: Vec<(u32, u32)> =
                members.iter().map(|&it| tensors[it as usize]).collect();
            going.sort_by_key(|(_, function)| self.graphs.number(*function));
            going.pop();
            let together = self.holders_of(*holder, &mut going, &members, &order);
            if going.is_empty() {
                continue;
            }
            holders.push(together);
            found.graphs.push(KeptGraphs {
                owner: String::new(),
                tensors: members.len(),
                freed: self.on_device(
                    self.live
                        .memory_only_of(ways, going.iter().map(|(node, _)| *node)),
                ),
            });
        }
        let all: Vec<u32> = holders.iter().flatten().copied().collect();
        let names = self
            .live
            .owners(self.inspector, self.frameworks, ways, &all);
        let mut names = names.into_iter();
        for (kept, together) in found.graphs.iter_mut().zip(&holders) {
            let names: Vec<String> = names.by_ref().take(together.len()).collect();
            kept.owner = names.join(" and ");
        }
        let bytes = |kept: &KeptGraphs| kept.freed.iter().map(|(_, bytes)| bytes).sum::<u64>();
        found
            .graphs
            .sort_by_key(|kept| std::cmp::Reverse(bytes(kept)));
    }

    /// The containers that must let go of some tensors for those to be freed: `holder`, or it and others that hold them too.
    /// Tensors that something else keeps are dropped from `going`.
    fn holders_of(
        &self,
        holder: u32,
        going: &mut Vec<(u32, u32)>,
        members: &[u32],
        order: &[(u32, Vec<u32>)],
    ) -> Vec<u32> {
        let tensors: Vec<u32> = going.iter().map(|(tensor, _)| *tensor).collect();
        let kept_beside = |holders: &[u32]| {
            let paths = self
                .live
                .shortest_paths_to(&tensors, holders.iter().copied());
            move |tensor: u32| paths.reaches(tensor)
        };
        let is_kept = kept_beside(&[holder]);
        if !tensors.iter().all(|&tensor| is_kept(tensor)) {
            going.retain(|(tensor, _)| !is_kept(*tensor));
            return vec![holder];
        }
        let has_some = |others: &[u32]| others.iter().filter(|it| members.contains(it)).count();
        let others = order.iter().filter(|(node, _)| *node != holder);
        let others = others.filter(|(_, others)| has_some(others) >= FEW);
        let holders: Vec<u32> = std::iter::once(holder)
            .chain(others.map(|(node, _)| *node))
            .collect();
        let is_kept = kept_beside(&holders);
        going.retain(|(tensor, _)| !is_kept(*tensor));
        holders
    }

    /// The objects that hold some of the tensors, directly or by way of small objects; those that hold most
    /// first.
    fn containers(&self, ways: &ShortestPaths, tensors: &[(u32, u32)]) -> Vec<(u32, Vec<u32>)> {
        let nodes = tensors.iter().map(|(node, _)| *node);
        let mut reaching: Reaching = nodes.zip(0..).map(|(node, at)| (node, vec![at])).collect();
        let mut found = Reaching::default();
        for _ in 0..LEVELS {
            let mut above = self.live.referrers(ways, &reaching);
            above.retain(|node, _| {
                !found.contains_key(node) && self.live.can_hold(self.inspector, *node)
            });
            // What holds a collection would count as one as well.
            let small = above.iter().filter(|(_, members)| members.len() < FEW);
            reaching = small.map(|(&node, it)| (node, it.clone())).collect();
            found.extend(above);
            if reaching.is_empty() {
                break;
            }
        }
        let mut order: Vec<(u32, Vec<u32>)> = found.into_iter().collect();
        order.sort_by_key(|(node, members)| (std::cmp::Reverse(members.len()), *node));
        order
    }
}
