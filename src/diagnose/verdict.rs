//! The verdict of a post-mortem, which claims only what the numbers prove.

use super::verdicts;
use crate::model::growth::Growth;
use crate::model::heap::same_owner;
use crate::model::human_bytes;
use crate::model::post_mortem::{Numbers, PostMortem};

const OTHERS: &str = "Run nvidia-smi to list the other processes on this device.";
const SMALLER: &str = "Use a smaller batch and accumulate gradients, checkpoint activations \
                       (torch.utils.checkpoint), train in bfloat16, or shard the model (FSDP).";

const CYCLES: &str = "Break the cycles (see the leak trace below), or collect in time with \
                      cyclescope.collect_on_pressure() or cyclescope.step().";

const GRAPHS: &str = "Delete CUDA graphs that are no longer replayed, or let them share a pool: torch.cuda.graph(graph, \
                      pool=other.pool()).";

const FROZEN: &str = "cyclescope.find_tensor_cycles() says what keeps it. If the program calls gc.freeze(), call \
                      gc.collect() before that; gc.unfreeze() and a collection free what is frozen now.";

/// What else is known of a request that failed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs<'a> {
    /// True if the request would not fit beside the model and the running step.
    pub too_big: bool,
    /// Bytes of the model with gradients and optimizer state.
    pub model: u64,
    /// Bytes of the running step.
    pub step: u64,
    /// Bytes of the largest tensor in memory; `None` if the live tensors were not looked at.
    pub largest: Option<u64>,
    /// Bytes by which each owner of the post-mortem's growth has grown by now, as far as that is known.
    pub grown: &'a [u64],
}

/// Sets the verdict, its sentence and the advice.
pub fn judge(found: &mut PostMortem, needs: Needs<'_>) {
    let (verdict, headline, advice) = match &found.numbers {
        None => (
            verdicts::UNCLEAR,
            "the allocator's statistics could not be read".to_owned(),
            "",
        ),
        Some(known) => of_parts(found, known)
            .or_else(|| of_numbers(known))
            .or_else(|| of_needs(found, known, needs))
            .or_else(|| of_growth(found, known, needs))
            .or_else(|| of_request(found, known, needs))
            .unwrap_or_else(|| otherwise(found, known, needs)),
    };
    let growth = match verdict {
        verdicts::GROWTH => most_grown(found, needs).map(|(growth, _)| growth),
        verdicts::KEPT_GRAPHS => growth_of_graphs(found),
        _ => None,
    };
    let places = growth.and_then(Growth::places);
    let places = places.map_or_else(String::new, |places| format!("{places}: "));
    let advice = format!("{places}{advice}");
    found.verdict = verdict.to_owned();
    found.headline = headline;
    found.advice = advice;
}

/// What a monitor has found of the container whose graphs the request would have fitted without.
fn growth_of_graphs(found: &PostMortem) -> Option<&Growth> {
    let graphs = found.graphs.iter().find(|it| it.would_fit == Some(true))?;
    let (owner, _) = graphs.what.rsplit_once(": ")?;
    let mut growth = found.growth.iter();
    growth.find(|it| same_owner(&it.owner, owner))
}

/// The verdict, its sentence and the advice.
type Verdict<'a> = (&'static str, String, &'a str);

/// By what would have fitted without a part of the memory.
fn of_parts(found: &PostMortem, known: &Numbers) -> Option<Verdict<'static>> {
    let asked = human_bytes(known.requested);
    let cycles = found.cycles.iter();
    if let Some(cycles) = cycles.into_iter().find(|it| it.would_fit == Some(true)) {
        return Some((
            verdicts::CYCLES,
            format!(
                "reference cycles hold {} of garbage; after a collection, the {asked} would have \
                 fitted",
                human_bytes(cycles.bytes)
            ),
            CYCLES,
        ));
    }
    let graphs = found.graphs.iter().find(|it| it.would_fit == Some(true))?;
    Some((
        verdicts::KEPT_GRAPHS,
        format!(
            "{}, {}; if only the last one were kept, the {asked} would fit",
            graphs.what,
            human_bytes(graphs.bytes)
        ),
        "Store `.item()` or `.detach()` of losses and metrics; evaluate under torch.no_grad().",
    ))
}

/// By the allocator's numbers.
fn of_numbers(known: &Numbers) -> Option<Verdict<'static>> {
    let asked = human_bytes(known.requested);
    let free = known.headroom() + known.free_in_blocks;
    if known.headroom() < known.requested && known.requested <= free {
        let headline = format!(
            "{} are free but fragmented: {} in blocks of the allocator, the largest {}, and {} on \
             the device; {asked} were requested",
            human_bytes(free),
            human_bytes(known.free_in_blocks),
            human_bytes(known.largest_free_block),
            human_bytes(known.headroom())
        );
        let advice = "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the program \
                      starts. If that is not possible, set max_split_size_mb, and use sizes that \
                      do not change from step to step.";
        return Some((verdicts::FRAGMENTATION, headline, advice));
    }
    if known.requested > known.limit {
        let limit = human_bytes(known.limit);
        let headline = format!("{asked} were requested at once, but the limit is {limit}");
        return Some((verdicts::BATCH_TOO_BIG, headline, SMALLER));
    }
    None
}

/// By what the program needs at least.
fn of_needs(found: &PostMortem, known: &Numbers, needs: Needs<'_>) -> Option<Verdict<'static>> {
    if !needs.too_big {
        return None;
    }
    let least = needs.model + needs.step + known.requested;
    // Blocks that only a CUDA graph may use are no batch's.
    if least <= known.limit {
        let is_elsewhere = others_took_it(known);
        return is_elsewhere.then(|| (verdicts::ELSEWHERE, outside(known), OTHERS));
    }
    // What the step uses may be what grew.
    let grown = most_grown(found, needs).map_or(0, |(_, now)| now);
    if least - grown.min(needs.step) <= known.limit {
        return None;
    }
    let asked = human_bytes(known.requested);
    let headline = format!(
        "{asked} would not fit even if only the model ({} with gradients and optimizer state) and \
         the running step ({}) were in memory",
        human_bytes(needs.model),
        human_bytes(needs.step)
    );
    Some((verdicts::BATCH_TOO_BIG, headline, SMALLER))
}

/// What has grown most on the device, and by how much.
fn most_grown<'f>(found: &'f PostMortem, needs: Needs<'_>) -> Option<(&'f Growth, u64)> {
    let now = needs.grown.iter().copied().chain(std::iter::repeat(0));
    let grown = found.growth.iter().zip(now);
    let is_there = |growth: &Growth| {
        let device = growth.example.rsplit(" on ").next().unwrap_or_default();
        growth.tensors > 0 && (device.is_empty() || device == found.device)
    };
    let grown = grown.filter(|(growth, _)| is_there(growth));
    let grown = grown.map(|(growth, now)| (growth, now.max(growth.bytes)));
    grown.max_by_key(|(_, bytes)| *bytes)
}

/// By what grew, if the request might have fitted without it.
fn of_growth<'f>(found: &'f PostMortem, known: &Numbers, needs: Needs<'_>) -> Option<Verdict<'f>> {
    let (largest, now) = most_grown(found, needs)?;
    // What grew may be the garbage that was found.
    let garbage = found.cycles.as_ref().map_or(0, |cycles| cycles.bytes);
    let left = known.headroom() + known.free_in_blocks;
    if garbage > 0 && garbage >= now || left.saturating_add(now) < known.requested {
        return None;
    }
    let size = human_bytes(largest.bytes);
    let headline = format!("{} ({size} when first reported)", largest.summary);
    Some((verdicts::GROWTH, headline, &largest.advice))
}

/// By the size of the request, where nothing is known to be in memory without need.
fn of_request(found: &PostMortem, known: &Numbers, needs: Needs<'_>) -> Option<Verdict<'static>> {
    let kept = found.graphs.iter().map(|kept| kept.bytes).sum::<u64>();
    let garbage = found.cycles.as_ref().map_or(0, |cycles| cycles.bytes);
    let is_large = needs.largest? <= known.requested / 2;
    // What only CUDA graphs may use could be enough.
    let is_unknown = others_took_it(known) || known.private >= known.requested;
    if !is_large || kept + garbage > 0 || is_unknown {
        return None;
    }
    let unneeded = match most_grown(found, needs) {
        Some((_, bytes)) => format!("what grew most keeps {}", human_bytes(bytes)),
        None => "nothing in memory is known to be unneeded".to_owned(),
    };
    let headline = format!(
        "{} were requested at once, more than twice the largest tensor in memory ({}); {} are left, \
         and {unneeded}",
        human_bytes(known.requested),
        human_bytes(needs.largest?),
        human_bytes(known.headroom() + known.free_in_blocks)
    );
    Some((verdicts::BATCH_TOO_BIG, headline, SMALLER))
}

fn otherwise(found: &PostMortem, known: &Numbers, needs: Needs<'_>) -> Verdict<'static> {
    if others_took_it(known) && known.elsewhere > Some(known.reserved) {
        return (verdicts::ELSEWHERE, outside(known), OTHERS);
    }
    let headline = format!(
        "{} did not fit into {}; the numbers below prove no single cause",
        human_bytes(known.requested),
        human_bytes(known.limit)
    );
    if known.private >= known.requested {
        let headline = format!(
            "{headline}; {} of it are reserved for CUDA graphs",
            human_bytes(known.private)
        );
        return (verdicts::UNCLEAR, headline, GRAPHS);
    }
    if let Some(frozen) = frozen(found) {
        let headline = format!(
            "{headline}; {} of it are garbage that no collection frees",
            human_bytes(frozen)
        );
        return (verdicts::UNCLEAR, headline, FROZEN);
    }
    if let Some(cycles) = &found.cycles {
        let headline = format!(
            "{headline}; {} of garbage in reference cycles are a part of it",
            human_bytes(cycles.bytes)
        );
        return (verdicts::UNCLEAR, headline, CYCLES);
    }
    if let Some((largest, now)) = most_grown(found, needs) {
        let headline = format!(
            "{headline}; {}, which grew, keeps {} of it",
            largest.owner,
            human_bytes(now)
        );
        let advice = "Run the program again with torch.cuda.memory._record_memory_history().";
        return (verdicts::UNCLEAR, headline, advice);
    }
    let advice = "Run the program again with cyclescope.watch_growth(), which finds what grows, or \
                  with torch.cuda.memory._record_memory_history().";
    (verdicts::UNCLEAR, headline, advice)
}

/// Bytes of garbage in cycles that a collection would not find, if all of it was looked for.
fn frozen(found: &PostMortem) -> Option<u64> {
    let is_all = found.cycles.is_none() && found.left_out.is_empty();
    let garbage = found.roles.get("garbage in cycles").copied();
    garbage.filter(|&bytes| is_all && bytes > 0)
}

/// True if this process may take as much, and the driver has it not, but others have.
fn others_took_it(known: &Numbers) -> bool {
    let may = known.limit.saturating_sub(known.reserved) >= known.requested;
    may && known.free < known.requested && Some(known.requested) <= known.elsewhere
}

fn outside(known: &Numbers) -> String {
    format!(
        "{} of the device are in use outside PyTorch's allocator, which has reserved {}",
        human_bytes(known.elsewhere.unwrap_or_default()),
        human_bytes(known.reserved)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::post_mortem::Finding;
    use crate::model::source::SourceLines;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn asked() -> Numbers {
        Numbers {
            requested: 512 * MIB,
            limit: GIB,
            reserved: GIB,
            allocated: GIB / 2,
            elsewhere: Some(0),
            ..Numbers::default()
        }
    }

    fn fragments() -> Numbers {
        Numbers {
            free_in_blocks: 600 * MIB,
            largest_free_block: 64 * MIB,
            ..asked()
        }
    }

    fn holds(would_fit: bool) -> Finding {
        Finding {
            bytes: 600 * MIB,
            would_fit: Some(would_fit),
            ..Finding::default()
        }
    }

    #[test]
    fn a_request_that_is_large_among_what_is_needed_is_too_big() {
        let judged = |found: PostMortem, largest| {
            let mut found = PostMortem {
                numbers: Some(asked()),
                ..found
            };
            let needs = Needs {
                largest,
                ..Needs::default()
            };
            judge(&mut found, needs);
            found.verdict
        };
        let holding = |garbage: u64, kept: u64| PostMortem {
            cycles: (garbage > 0).then(|| Finding {
                bytes: garbage * MIB,
                would_fit: Some(false),
                ..Finding::default()
            }),
            graphs: vec![Finding {
                bytes: kept * MIB,
                would_fit: Some(false),
                ..Finding::default()
            }],
            ..PostMortem::default()
        };
        assert_eq!(judged(holding(0, 0), Some(256 * MIB)), "batch-too-big");
        assert_eq!(judged(holding(0, 0), Some(257 * MIB)), "unclear");
        assert_eq!(judged(holding(0, 0), None), "unclear");
        assert_eq!(judged(holding(64, 0), Some(0)), "unclear");
        assert_eq!(judged(holding(0, 64), Some(0)), "unclear");
    }

    #[test]
    fn garbage_gets_no_advice_for_growth() {
        let garbage = Finding {
            bytes: 600 * MIB,
            would_fit: Some(false),
            ..Finding::default()
        };
        let grown = |bytes| Growth {
            tensors: 1,
            bytes,
            advice: "Clear it.".to_owned(),
            ..Growth::default()
        };
        for (growth, verdict) in [
            (vec![], "unclear"),
            (vec![grown(300 * MIB)], "unclear"),
            (vec![grown(601 * MIB)], "growth"),
        ] {
            let found = PostMortem {
                cycles: Some(garbage.clone()),
                growth,
                ..PostMortem::default()
            };
            let found = judged(found, asked(), false);
            assert_eq!(found.verdict, verdict);
            assert_eq!(
                found.advice.contains("Break the cycles"),
                verdict == "unclear"
            );
        }
    }

    #[test]
    fn the_line_that_adds_to_what_fills_the_memory_is_named() {
        let line = SourceLines {
            file: "train.py".to_owned(),
            marked: 37,
            ..SourceLines::default()
        };
        let losses =
            |line: u32| format!("local `losses` in `fit`, train.py:{line}, thread MainThread");
        let growth = Growth {
            owner: losses(38),
            tensors: 20,
            bytes: 600 * MIB,
            advice: "Limit it.".to_owned(),
            added_at: vec![line],
            ..Growth::default()
        };
        let graphs = Finding {
            what: format!("{}: 20 tensors with their autograd graphs", losses(40)),
            bytes: 600 * MIB,
            would_fit: Some(true),
            ..Finding::default()
        };
        for (graphs, verdict) in [(vec![graphs], "kept-graphs"), (vec![], "growth")] {
            let found = PostMortem {
                graphs,
                growth: vec![growth.clone()],
                ..PostMortem::default()
            };
            let found = judged(found, asked(), false);
            assert_eq!(found.verdict, verdict);
            assert!(
                found.advice.starts_with("train.py:37: "),
                "{}",
                found.advice
            );
        }
    }

    fn judged(found: PostMortem, numbers: Numbers, too_big: bool) -> PostMortem {
        let mut found = PostMortem {
            numbers: Some(numbers),
            ..found
        };
        let needs = Needs {
            too_big,
            step: if too_big { GIB } else { 0 },
            ..Needs::default()
        };
        judge(&mut found, needs);
        found
    }

    #[test]
    fn blocks_of_cuda_graphs_are_no_batch() {
        let numbers = Numbers {
            limit: 4 * GIB,
            private: 3 * GIB,
            ..asked()
        };
        let mut found = PostMortem {
            numbers: Some(numbers),
            ..PostMortem::default()
        };
        let needs = Needs {
            too_big: true,
            largest: Some(16 * MIB),
            ..Needs::default()
        };
        judge(&mut found, needs);
        assert_eq!(found.verdict, "unclear");
        let reserved = "3.0 GiB of it are reserved for CUDA graphs";
        assert!(found.headline.contains(reserved));
    }

    #[test]
    fn what_a_step_uses_may_be_what_grew() {
        let growth = Growth {
            tensors: 1,
            bytes: 900 * MIB,
            ..Growth::default()
        };
        let grown = PostMortem {
            growth: vec![growth],
            ..PostMortem::default()
        };
        assert_eq!(judged(grown, asked(), true).verdict, "growth");
    }

    #[test]
    fn frozen_garbage_is_said_to_be_that() {
        let frozen = PostMortem {
            roles: [("garbage in cycles".to_owned(), 600 * MIB)].into(),
            ..PostMortem::default()
        };
        let told = |found: PostMortem| judged(found, asked(), false).headline;
        assert!(told(frozen.clone()).contains("garbage that no collection frees"));
        let cut_short = PostMortem {
            left_out: vec!["cycles: no time left".to_owned()],
            ..frozen
        };
        assert!(!told(cut_short).contains("no collection"));
    }

    #[test]
    fn each_verdict_needs_its_proof() {
        let nothing = PostMortem::default;
        let cycles = |fits| PostMortem {
            cycles: Some(holds(fits)),
            ..nothing()
        };
        let graphs = |fits| PostMortem {
            graphs: vec![holds(fits)],
            ..nothing()
        };
        let grown = PostMortem {
            growth: vec![Growth {
                tensors: 1,
                bytes: 512 * MIB,
                ..Growth::default()
            }],
            ..nothing()
        };
        let few = Numbers {
            free_in_blocks: 500 * MIB,
            ..fragments()
        };
        let large = Numbers {
            requested: 2 * GIB,
            ..asked()
        };
        let crowded = |limit| Numbers {
            limit,
            elsewhere: Some(7 * GIB),
            free: 64 * MIB,
            ..asked()
        };
        for (found, numbers, too_big, verdict) in [
            (cycles(true), asked(), false, "cycles"),
            (cycles(false), asked(), false, "unclear"),
            (graphs(true), asked(), false, "kept-graphs"),
            (graphs(false), asked(), false, "unclear"),
            (nothing(), fragments(), false, "fragmentation"),
            (nothing(), few, false, "unclear"),
            (nothing(), large, false, "batch-too-big"),
            (nothing(), asked(), true, "batch-too-big"),
            (grown, asked(), false, "growth"),
            (nothing(), crowded(8 * GIB), false, "elsewhere"),
            (nothing(), crowded(8 * GIB), true, "elsewhere"),
            (nothing(), crowded(GIB), false, "unclear"),
            (nothing(), crowded(GIB), true, "batch-too-big"),
            (nothing(), asked(), false, "unclear"),
        ] {
            assert_eq!(judged(found, numbers, too_big).verdict, verdict);
            assert!(verdicts::VERDICTS.contains(&verdict));
        }
    }

    #[test]
    fn what_grew_is_the_cause_only_if_the_request_might_fit_without_it() {
        let found = |bytes, now: &[u64]| {
            let mut found = PostMortem {
                numbers: Some(asked()),
                growth: vec![Growth {
                    owner: "`ring`".to_owned(),
                    tensors: 100,
                    bytes,
                    ..Growth::default()
                }],
                ..PostMortem::default()
            };
            let needs = Needs {
                grown: now,
                ..Needs::default()
            };
            judge(&mut found, needs);
            found
        };
        assert_eq!(found(MIB, &[]).verdict, "unclear");
        assert_eq!(found(MIB, &[511 * MIB]).verdict, "unclear");
        assert_eq!(found(MIB, &[512 * MIB]).verdict, "growth");
        let full = found(MIB, &[3 * MIB]);
        assert!(
            full.headline
                .ends_with("; `ring`, which grew, keeps 3.0 MiB of it")
        );
        assert!(!full.advice.contains("watch_growth"));
    }

    #[test]
    fn what_grew_on_another_device_is_not_the_cause() {
        for (device, verdict) in [
            ("cuda:1", "growth"),
            ("cuda:10", "unclear"),
            ("cpu", "unclear"),
        ] {
            let found = PostMortem {
                device: "cuda:1".to_owned(),
                growth: vec![Growth {
                    tensors: 1,
                    bytes: 512 * MIB,
                    example: format!("float32[4] on {device}"),
                    ..Growth::default()
                }],
                ..PostMortem::default()
            };
            assert_eq!(judged(found, asked(), false).verdict, verdict, "{device}");
        }
    }

    #[test]
    fn fragmentation_is_told_with_its_setting() {
        let found = judged(PostMortem::default(), fragments(), false);
        assert!(
            found
                .headline
                .starts_with("600.0 MiB are free but fragmented")
        );
        assert!(
            found
                .advice
                .contains("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
        );
    }
}
