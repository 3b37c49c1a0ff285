//! The list of leaks: the master beside the leak that is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use maud::{Markup, Render, html};

use crate::model::compare::Change;
use crate::model::merge::is_complete;
use crate::model::occurrences::distinct;
use crate::model::report::{Leak, Occurrence, Report};
use crate::model::words::{brief, counted, grouped, human_bytes, name, short_location, utc};
use crate::render::html::NAME;
use crate::render::html::header::short_places;
use crate::render::html::parts::table;

/// How many leaks that are gone are listed.
const GONE: usize = 100;

/// How many leaks are printed in full, besides the selected one; print.css has the same number.
const PRINTED: usize = 12;

/// The leaks of the page in its order, the one that holds most bytes first, each with the id of its section.
pub struct Listed<'a> {
    pub leak: &'a Leak,
    /// Its place in the report.
    pub index: usize,
    pub id: String,
    /// What has become of it since the report that this one is compared with.
    pub change: Option<Change>,
    /// What it held on each rank that it was seen on.
    pub ranks: BTreeMap<u32, RankShare>,
}

/// What a leak held on a rank.
#[derive(Default)]
pub struct RankShare {
    bytes: u64,
    /// How many times it was seen there; `None` where not all occurrences are listed.
    count: Option<u64>,
}

/// As the script reads it.
impl Display for RankShare {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let times = self.count.map(times).unwrap_or_default();
        write!(out, "{}|{}|{times}", self.bytes, human_bytes(self.bytes))
    }
}

/// A section's id is the signature, so that a link to a leak stays a link to it; where several have the same or it is
/// none, its place.
pub fn listed<'a>(leaks: &[(usize, &'a Leak)], report: &Report) -> Vec<Listed<'a>> {
    let mut taken = BTreeSet::new();
    let place = |(rank, &(index, leak)): (usize, &(usize, &'a Leak))| {
        let signature = &leak.signature;
        let is_one = signature.len() >= 8
            && signature.len() <= 64
            && signature.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = match is_one && taken.insert(signature.clone()) {
            true => signature.clone(),
            false => format!("leak-{}", rank + 1),
        };
        Listed {
            leak,
            index,
            id,
            change: report.change(leak),
            ranks: ranks(report, leak),
        }
    };
    leaks.iter().enumerate().map(place).collect()
}

fn ranks(report: &Report, leak: &Leak) -> BTreeMap<u32, RankShare> {
    let mut ranks: BTreeMap<u32, RankShare> = BTreeMap::new();
    let mut seen: BTreeMap<u32, Vec<&Occurrence>> = BTreeMap::new();
    for one in &leak.occurrences {
        if let Some(rank) = one.rank {
            seen.entry(rank).or_default().push(one);
        }
    }
    let is_complete = is_complete(leak);
    for (rank, seen) in seen {
        let distinct = |of: fn(&Occurrence) -> u64| distinct(seen.iter().copied(), of);
        let share = RankShare {
            bytes: distinct(|one| one.bytes),
            count: is_complete.then(|| distinct(|one| one.count)),
        };
        ranks.insert(rank, share);
    }
    for share in &report.processes {
        let bytes = share.bytes_held.get(&leak.signature);
        if let Some((rank, bytes)) = share.rank.zip(bytes.copied()) {
            ranks.entry(rank).or_default().bytes = bytes;
        }
    }
    ranks
}

/// The list; nothing for a single leak. `all` is what the leaks hold together.
pub fn contents(leaks: &[Listed<'_>], all: u64) -> Markup {
    let held = leaks.iter().map(|it| it.leak.bytes_held);
    let most = held.max().unwrap_or(0).max(1) as f64;
    let ranks: BTreeSet<&u32> = leaks.iter().flat_map(|it| it.ranks.keys()).collect();
    let ranks = ranks.len();
    html! {
        @if let [first, _, ..] = leaks {
            a.skip href={ "#" (first.id) } { "Skip the list" }
            nav aria-label="Leaks" {
                p.total {
                    b { (counted(leaks.len() as u64, "leak", "leaks")) } " · " (human_bytes(all))
                    output {}
                }
                (filters(leaks))
                ol {
                    @for it in leaks {
                        li data-whose=(whose(it.leak)) data-pattern=(pattern(it.leak))
                            data-device=(lines(devices(it.leak))) data-rank=(lines(it.ranks.keys()))
                            data-bytes=(it.leak.bytes_held)
                            data-shares=[(ranks > 1).then(|| lines(it.ranks.values()))]
                            data-change=[it.change.map(Change::word)] data-places=(places(it.leak)) {
                            a href={ "#" (it.id) } { (line(it, most)) }
                        }
                    }
                }
                button.rest type="button" hidden {}
                @if leaks.len() > PRINTED {
                    p.on-paper {
                        "Printed in full: the " (PRINTED) " leaks that hold most memory, and the one selected on the page. To print \
                         another, select it on the page."
                    }
                }
            }
        }
    }
}

/// Search, filters and order, for the script.
fn filters(leaks: &[Listed<'_>]) -> Markup {
    let set = |of: fn(&Leak) -> String| leaks.iter().map(|it| of(it.leak)).collect();
    let all_devices = leaks.iter().flat_map(|it| devices(it.leak)).collect();
    let all_ranks = leaks.iter().flat_map(|it| it.ranks.keys().copied());
    let changes = leaks.iter().filter_map(|it| it.change).map(Change::word);
    let is_compared = leaks.iter().any(|it| it.change.is_some());
    html! {
        div.filters hidden {
            input type="search" placeholder="Find a leak" aria-label="Find a leak";
            (choice("Whose", "whose", "Yours and libraries", "", &set(whose)))
            (choice("Pattern", "pattern", "All patterns", "", &set(pattern)))
            (choice("Device", "device", "All devices", "", &all_devices))
            (choice("Rank", "rank", "All ranks", "rank ", &all_ranks.collect::<BTreeSet<u32>>()))
            (choice("Change", "change", "New and known", "", &changes.collect::<BTreeSet<_>>()))
            select aria-label="Order" data-order {
                option value="0" { @if is_compared { "Changed first" } @else { "Most memory" } }
                option value="1" { "Most often" }
                option value="2" { "By file" }
            }
        }
    }
}

/// What one chooses by, for the script, each value after the word `kind`; nothing where there is one value only.
fn choice<T: Render>(
    words: &str,
    key: &str,
    all: &str,
    kind: &str,
    values: &BTreeSet<T>,
) -> Markup {
    html! {
        @if values.len() > 1 {
            select aria-label=(words) data-by=(key) {
                option value="" { (all) }
                @for value in values { option value=(value) { (kind) (value) } }
            }
        }
    }
}

/// The leaks of the report that this one is compared with that it does not have.
pub fn gone(report: &Report) -> Markup {
    let earlier = report.earlier.iter();
    let all: Vec<_> = earlier.clone().flat_map(|it| &it.gone).collect();
    html! {
        @if !all.is_empty() {
            section #gone.sheet aria-label="Leaks that are gone" {
                h2 { (counted(all.len() as u64, "leak is", "leaks are")) " gone" }
                p.more { "In the report of " (earlier.map(|it| utc(it.time)).collect::<String>()) ", and not in this one." }
                (table(None, &["Size", "Place", "Leak"], all.iter().take(GONE).map(|leak| html! {
                    tr {
                        td.number { (human_bytes(leak.bytes_held)) }
                        td { @if let Some(at) = &leak.location { (name(&short_location(at), NAME)) } }
                        td.name { (name(&leak.summary, NAME)) }
                    }
                })))
                @if all.len() > GONE { p.more { "and " (grouped((all.len() - GONE) as u64)) " more" } }
            }
        }
    }
}

/// One value a line, for the script.
fn lines<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<String> = values.into_iter().map(|it| it.to_string()).collect();
    values.join("\n")
}

/// Where to change what, as the page copies it.
fn places(leak: &Leak) -> String {
    let places = leak.places_to_change().into_iter();
    let places: BTreeSet<String> = places.map(|it| name(&it.to_string(), NAME)).collect();
    lines(places)
}

fn whose(leak: &Leak) -> String {
    match (leak.is_library(), leak.is_of_unknown_code()) {
        (true, _) => "library",
        (_, true) => "unknown",
        _ => "yours",
    }
    .to_owned()
}

fn pattern(leak: &Leak) -> String {
    name(leak.pattern.as_deref().unwrap_or("other"), 60)
}

fn devices(leak: &Leak) -> BTreeSet<String> {
    let devices = leak.buffers.iter().map(|buffer| name(&buffer.device, 40));
    devices.collect()
}

/// The pattern of a leak, whose it is and what has become of it, as far as that is to be said.
fn marks(it: &Listed<'_>) -> Vec<Markup> {
    let pattern = it.leak.pattern.as_ref().map(|pattern| name(pattern, 60));
    let library = it.leak.is_library().then(|| "library".to_owned());
    let change = it.change.filter(|change| change.is_for_worse());
    let change = change.map(|change| html! { b.change { (change.words()) } });
    let words = pattern.into_iter().chain(library);
    words.map(|it| html! { (it) }).chain(change).collect()
}

/// How many times a leak was seen; empty for once.
fn times(count: u64) -> String {
    match count {
        1 => String::new(),
        count => format!("{} ×", grouped(count)),
    }
}

/// A leak in the list, with a bar that tells its share of `most` bytes.
fn line(it: &Listed<'_>, most: f64) -> Markup {
    let leak = it.leak;
    let width = (64.0 * leak.bytes_held as f64 / most).max(1.0);
    html! {
        b { (human_bytes(leak.bytes_held)) }
        svg.share width="64" height="8" aria-hidden="true" {
            rect width=(format_args!("{width:.1}")) height="8" rx="2" {}
        }
        i { (times(leak.count)) }
        em {
            @for (index, mark) in marks(it).into_iter().enumerate() {
                @if index > 0 { " · " }
                (mark)
            }
        }
        span { (name(&brief(&leak.summary), 160)) }
        @if let Some(places) = short_places(leak.places_to_change()) { small { (places) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn the_list_says_whose_a_leak_is() {
        let mut report = samples::linked_nodes_and_exception();
        report.leaks[0].known = Some(Default::default());
        let leaks: Vec<(usize, &Leak)> = report.leaks.iter().enumerate().collect();
        let list = contents(&listed(&leaks, &report), report.bytes_held()).0;
        assert_eq!(list.matches("· library").count(), 1);
        assert!(
            list.contains("<i>3 ×</i><em>both-ways · library</em>"),
            "{list}"
        );
    }

    #[test]
    fn a_link_is_the_signature_unless_it_is_none_or_not_the_only_one() {
        let leak = |signature: &str| Leak {
            signature: signature.to_owned(),
            ..samples::callback().leaks.remove(0)
        };
        let leaks = ["0123456789abcdef", "\"><b>", "0123456789abcdef", ""].map(leak);
        let leaks: Vec<(usize, &Leak)> = leaks.iter().enumerate().collect();
        let listed = listed(&leaks, &samples::no_leaks());
        let ids: Vec<String> = listed.into_iter().map(|it| it.id).collect();
        assert_eq!(ids, ["0123456789abcdef", "leak-2", "leak-3", "leak-4"]);
    }

    #[test]
    fn ranks_stand_in_the_order_of_numbers() {
        let mut report = samples::seen_on_ranks(12);
        let leak = report.leaks[0].clone();
        report.leaks.push(Leak {
            signature: "0123456789abcdef".to_owned(),
            ..leak
        });
        let leaks: Vec<(usize, &Leak)> = report.leaks.iter().enumerate().collect();
        let list = contents(&listed(&leaks, &report), report.bytes_held()).0;
        let ranks = list.split("data-by=\"rank\"").nth(1).expect("a filter");
        let place = |rank: &str| ranks.find(&format!(">{rank}</option>")).expect(rank);
        assert!(place("rank 2") < place("rank 10"));
        assert!(place("All ranks") < place("rank 0"));
        assert!(!list.contains("data-by=\"change\""));
    }

    #[test]
    fn what_is_gone_is_told_and_what_is_new_is_marked() {
        let earlier = samples::linked_nodes_and_exception();
        let mut report = earlier.clone();
        report.leaks[1].signature = "0123456789abcdef".to_owned();
        report.leaks[1].pattern = None;
        let report = report.against(&earlier);
        let leaks: Vec<(usize, &Leak)> = report.leaks.iter().enumerate().collect();
        let list = contents(&listed(&leaks, &report), report.bytes_held()).0;
        assert_eq!(list.matches("<em><b class=\"change\">new</b>").count(), 1);
        assert!(list.contains("data-by=\"change\""));
        let gone_ones = gone(&report).0;
        assert!(gone_ones.contains("1 leak is gone"), "{gone_ones}");
        assert!(gone(&earlier).0.is_empty());
    }
}
