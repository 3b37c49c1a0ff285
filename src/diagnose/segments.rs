//! PyTorch's caching allocator in numbers, and whether a request would fit if memory were freed.
//!
//! The allocator takes memory from CUDA in segments and cuts them into blocks. When a request does not
//! fit, it first gives back every segment that is wholly free and tries again, so at an
//! out-of-memory error what is reserved and not allocated lies between blocks in use
//! (`c10/cuda/CUDACachingAllocator.cpp`, `malloc`).

use rustc_hash::FxHashSet;

use crate::model::post_mortem::Numbers;

/// Expandable segments are mapped and unmapped in pieces of this size.
const EXPANDABLE_PIECE: u64 = 20 << 20;
/// Requests above this come from segments of their own kind, `large`.
const LARGE: u64 = 1 << 20;

/// A piece of memory that the allocator has from CUDA, as `torch.cuda.memory_snapshot` lists it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject), pyo3(from_item_all))]
pub struct Segment {
    #[cfg_attr(feature = "python", pyo3(default))]
    pub address: u64,
    pub total_size: u64,
    #[cfg_attr(feature = "python", pyo3(default = "large".to_owned()))]
    pub segment_type: String,
    #[cfg_attr(feature = "python", pyo3(default))]
    pub is_expandable: bool,
    #[cfg_attr(feature = "python", pyo3(default))]
    pub stream: i64,
    #[cfg_attr(feature = "python", pyo3(default))]
    pub segment_pool_id: (u64, u64),
    /// In order, without gaps.
    pub blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject), pyo3(from_item_all))]
pub struct Block {
    /// Older versions of PyTorch do not say; the blocks lie side by side.
    #[cfg_attr(feature = "python", pyo3(default))]
    pub address: Option<u64>,
    pub size: u64,
    pub state: String,
}

impl Block {
    pub fn is_in_use(&self) -> bool {
        self.state != "inactive"
    }

    /// True if the program has freed it, and a stream needs it still.
    pub fn is_waiting(&self) -> bool {
        matches!(&*self.state, "active_pending_free" | "active_awaiting_free")
    }
}

impl Segment {
    /// True if a request of this size takes its memory from here.
    fn is_for(&self, requested: u64) -> bool {
        (self.segment_type == "large") == (requested > LARGE)
    }

    /// True if it belongs to a CUDA graph, or another pool of its own, which nothing else may use.
    pub fn is_private(&self) -> bool {
        self.segment_pool_id != (0, 0)
    }

    /// The blocks with their addresses.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, &Block)> {
        self.blocks.iter().scan(self.address, |next, block| {
            let address = block.address.unwrap_or(*next);
            *next = address + block.size;
            Some((address, block))
        })
    }

    /// The sizes of the free stretches, and whether anything is in use still, once the blocks with some
    /// addresses are free.
    fn free_runs(&self, freed: &[u64]) -> (Vec<u64>, bool) {
        let mut runs = vec![0];
        let mut any_in_use = false;
        for (address, block) in self.blocks() {
            let first = freed.partition_point(|&it| it < address);
            let is_freed = freed
                .get(first)
                .is_some_and(|&it| it < address + block.size);
            if block.is_in_use() && !is_freed {
                any_in_use = true;
                runs.push(0);
            } else if let Some(run) = runs.last_mut() {
                *run += block.size;
            }
        }
        (runs, any_in_use)
    }
}

impl Segment {
    /// The bytes that are not in use: those that the allocator could give back to CUDA, and the others.
    pub fn unused(&self) -> (u64, u64) {
        let (runs, any_in_use) = self.free_runs(&[]);
        let all: u64 = runs.iter().sum();
        let returnable = match (self.is_expandable, any_in_use) {
            (true, _) => runs.iter().map(|run| run - run % EXPANDABLE_PIECE).sum(),
            (false, false) => all,
            (false, true) => 0,
        };
        (returnable, all - returnable)
    }
}

/// What the allocator's segments add to the numbers.
pub fn count(numbers: &mut Numbers, segments: &[Segment]) {
    let (private, usable): (Vec<&Segment>, Vec<_>) =
        segments.iter().partition(|it| it.is_private());
    let usable = usable.into_iter().filter(|it| it.is_for(numbers.requested));
    let unused = usable
        .flat_map(|it| &it.blocks)
        .filter(|it| !it.is_in_use());
    let unused: Vec<u64> = unused.map(|block| block.size).collect();
    numbers.largest_free_block = unused.iter().copied().max().unwrap_or_default();
    numbers.free_in_blocks = unused.iter().sum();
    numbers.private = private.iter().map(|segment| segment.total_size).sum();
}

/// True if the request would fit once the blocks at some addresses were free; of none, an address is
/// unknown.
///
/// As the allocator would do it: neighbouring free blocks become one, a request takes a block of its
/// stream that is large enough, and segments without a block in use go back to CUDA. Without the `stream` of
/// the request, blocks of any stream are taken for its own.
pub fn would_fit(
    numbers: &Numbers,
    segments: &[Segment],
    freed: impl IntoIterator<Item = u64>,
    stream: Option<i64>,
) -> bool {
    let mut freed: Vec<u64> = freed.into_iter().collect();
    freed.sort_unstable();
    let mut headroom = numbers.headroom();
    for segment in segments.iter().filter(|segment| !segment.is_private()) {
        let (runs, any_in_use) = segment.free_runs(&freed);
        if segment.is_expandable {
            headroom += runs
                .iter()
                .map(|run| run - run % EXPANDABLE_PIECE)
                .sum::<u64>();
        } else if !any_in_use {
            headroom += segment.total_size;
        }
        let is_of_stream = stream.is_none_or(|stream| stream == segment.stream);
        let is_usable = is_of_stream && segment.is_for(numbers.requested);
        if is_usable && runs.iter().any(|&run| run >= numbers.requested) {
            return true;
        }
    }
    headroom >= numbers.requested
}

/// True if the request would fit if only the blocks at some addresses were in use.
pub fn would_fit_beside(
    numbers: &Numbers,
    segments: &[Segment],
    needed: &FxHashSet<u64>,
    stream: Option<i64>,
) -> bool {
    let blocks = segments.iter().flat_map(Segment::blocks);
    let dispensable = blocks.filter(|(address, it)| it.is_in_use() && !needed.contains(address));
    let dispensable = dispensable.map(|(address, _)| address);
    would_fit(numbers, segments, dispensable, stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn numbers(requested: u64, free: u64, reserved: u64) -> Numbers {
        Numbers {
            requested: requested * MIB,
            limit: GIB,
            free,
            reserved,
            ..Numbers::default()
        }
    }

    fn asked(requested: u64) -> Numbers {
        numbers(requested, 0, GIB)
    }

    /// A segment of blocks in MiB; those that are not in use are negative.
    fn segment(at: u64, sizes: &[i64]) -> Segment {
        let block = |size: &i64| Block {
            address: None,
            size: size.unsigned_abs() * MIB,
            state: if *size > 0 {
                "active_allocated"
            } else {
                "inactive"
            }
            .to_owned(),
        };
        Segment {
            address: 0x1000 * MIB * at,
            total_size: sizes.iter().map(|size| size.unsigned_abs()).sum::<u64>() * MIB,
            segment_type: "large".to_owned(),
            is_expandable: false,
            stream: 0,
            segment_pool_id: (0, 0),
            blocks: sizes.iter().map(block).collect(),
        }
    }

    fn addresses(segment: &Segment) -> Vec<u64> {
        segment.blocks().map(|(address, _)| address).collect()
    }

    #[test]
    fn neighbouring_blocks_become_one() {
        let whole = [segment(1, &[8, 8, 8, 40])];
        let blocks = addresses(&whole[0]);
        let fits = |freed: Vec<u64>| would_fit(&asked(16), &whole, freed, None);
        assert!(!fits(vec![]));
        assert!(!fits(vec![blocks[0], blocks[2]]));
        assert!(fits(vec![blocks[0], blocks[1]]));
        let beside = |requested, needed: u64| {
            let needed = FxHashSet::from_iter([needed]);
            would_fit_beside(&asked(requested), &whole, &needed, None)
        };
        assert!(beside(24, blocks[3]));
        assert!(!beside(40, blocks[3]));
    }

    #[test]
    fn whole_segments_go_back_and_are_taken_anew() {
        let three = [segment(1, &[20]), segment(2, &[20]), segment(3, &[20, -12])];
        let first: Vec<u64> = three.iter().map(|each| addresses(each)[0]).collect();
        let fits = |freed: Vec<u64>| would_fit(&asked(40), &three, freed, None);
        assert!(!fits(vec![first[0]]));
        assert!(fits(vec![first[0], first[1]]));
        assert!(fits(vec![first[0], first[2]]));
    }

    #[test]
    fn blocks_of_other_kinds_do_not_help() {
        let one = segment(1, &[32, 2]);
        let others = [
            Segment {
                stream: 7,
                ..one.clone()
            },
            Segment {
                segment_type: "small".to_owned(),
                ..one.clone()
            },
            Segment {
                segment_pool_id: (0, 1),
                ..one.clone()
            },
        ];
        for other in others {
            let freed = [other.address];
            assert!(!would_fit(&asked(16), &[other], freed, Some(0)));
        }
        assert!(would_fit(
            &asked(16),
            std::slice::from_ref(&one),
            [one.address],
            Some(0)
        ));
        let private = Segment {
            segment_pool_id: (0, 1),
            ..segment(1, &[32])
        };
        let freed = [private.address];
        assert!(!would_fit(&asked(16), &[private], freed, None));
    }

    #[test]
    fn expandable_segments_give_pieces_back() {
        let whole = [Segment {
            is_expandable: true,
            ..segment(1, &[40, 2, 40])
        }];
        let blocks = addresses(&whole[0]);
        let freed = [blocks[0], blocks[2]];
        assert!(would_fit(&asked(80), &whole, freed, None));
        assert!(!would_fit(&asked(100), &whole, freed, None));
    }

    #[test]
    fn no_more_than_the_limit_is_taken_from_the_driver() {
        assert!(would_fit(&numbers(1, GIB, 0), &[], [], None));
        assert!(!would_fit(&numbers(1, GIB, GIB), &[], [], None));
    }
}
