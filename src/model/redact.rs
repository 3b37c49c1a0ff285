//! Redaction: removes the program's values and folders from a report.
//!
//! Values are never read into such a report: [`crate::graph::hide_values`] leaves them out of what
//! the analysis works on, and so out of all that is derived from it. What is left for here are
//! the places in files, which the analysis needs whole: it tells a library's code by its folder.

use super::report::{Leak, Location, Process, Report};

/// Says in the report that something was left out.
pub const NOTE: &str = "Made with redact=True: values and strings of the program, folders and \
                        the machine's name are left out.";

/// True for a report that has no values of the program.
pub fn is_redacted(report: &Report) -> bool {
    report.notes.iter().any(|note| note == NOTE)
}

/// True if no note says what the report does not know: that names were left out is none of its limits.
pub fn has_no_limits(report: &Report) -> bool {
    report.notes.iter().all(|note| note == NOTE)
}

/// Removes folders and host names from a report.
pub fn redact(report: &mut Report) {
    redact_process(&mut report.process);
    for leak in &mut report.leaks {
        redact_leak(leak);
    }
    for share in &mut report.processes {
        share.host.clear();
    }
    for gone in report.earlier.iter_mut().flat_map(|it| &mut it.gone) {
        gone.location
            .iter_mut()
            .for_each(|at| shorten(&mut at.file));
    }
    if !is_redacted(report) {
        report.notes.push(NOTE.to_owned());
    }
}

/// Removes the program's folder and the host name.
pub fn redact_process(process: &mut Process) {
    process.host.clear();
    shorten(&mut process.program);
}

/// A place in a file without its folder: `/home/user/train.py:12 step` becomes `train.py:12 step`.
pub fn without_folder(place: &str) -> &str {
    place.rsplit(['/', '\\']).next().unwrap_or(place)
}

fn redact_leak(leak: &mut Leak) {
    let mut folders: Vec<String> = locations(leak)
        .into_iter()
        .filter_map(|location| {
            let name = without_folder(&location.file).len();
            let folder = &location.file[..location.file.len() - name];
            let folder = (!folder.is_empty()).then(|| folder.to_owned());
            shorten(&mut location.file);
            folder
        })
        .collect();
    for buffer in &mut leak.buffers {
        buffer.allocation.iter_mut().for_each(shorten);
    }
    for node in &mut leak.graph.nodes {
        for (name, value) in &mut node.details {
            if name == "allocated at" {
                shorten(value);
            }
        }
    }
    for occurrence in &mut leak.occurrences {
        occurrence.host.clear();
    }
    // The longest first: one may be within another.
    folders.sort_unstable_by_key(|folder| std::cmp::Reverse(folder.len()));
    folders.dedup();
    let advice = &mut leak.advice;
    let code = [advice.before.as_mut(), advice.after.as_mut()];
    for text in code.into_iter().flatten().chain([&mut advice.text]) {
        for folder in &folders {
            *text = text.replace(folder.as_str(), "");
        }
    }
}

/// Every place of a leak that names a file.
pub(super) fn locations(leak: &mut Leak) -> Vec<&mut Location> {
    let steps = leak
        .cycle
        .iter_mut()
        .flat_map(|step| [step.location.as_mut(), step.allocated_at.as_mut()]);
    let buffers = leak.buffers.iter_mut().map(|b| b.allocated_at.as_mut());
    let cuts = leak.cuts.iter_mut();
    let cuts = cuts.flat_map(|cut| cut.location.iter_mut().chain(&mut cut.candidates));
    let nodes = leak.graph.nodes.iter_mut().map(|n| n.location.as_mut());
    let made_by = leak.made_by.as_mut();
    let library = leak
        .library
        .as_mut()
        .map(|library| library.your_line.as_mut());
    steps
        .chain(buffers)
        .chain(nodes)
        .chain(library)
        .chain([made_by])
        .flatten()
        .chain(cuts)
        .collect()
}

/// Takes the folder off a place in a file: see [`without_folder`].
pub fn shorten(place: &mut String) {
    let name = without_folder(place).len();
    place.drain(..place.len() - name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::json::to_json;
    use crate::model::merge::merge_processes;
    use crate::render::samples;

    #[test]
    fn no_folder_stays() {
        for mut report in [samples::callback(), samples::linked_nodes_and_exception()] {
            let secret = "/home/secret-folder/";
            report.process.host = "secret-host".to_owned();
            report.process.program = format!("{secret}run.py");
            report = merge_processes(&[&report]).expect("a report");
            let mut earlier = report.clone();
            for at in earlier.leaks.iter_mut().flat_map(locations) {
                at.file = format!("{secret}{}", without_folder(&at.file));
            }
            report.leaks.truncate(1);
            report = report.against(&earlier);
            for leak in &mut report.leaks {
                for location in locations(leak) {
                    location.file = format!("{secret}{}", without_folder(&location.file));
                }
                leak.advice
                    .text
                    .push_str(&format!(" See {secret}run.py:7."));
                leak.graph.nodes[0]
                    .details
                    .push(("allocated at".to_owned(), format!("{secret}run.py:9")));
                leak.buffers[0]
                    .allocation
                    .push(format!("{secret}run.py:9 step"));
            }
            redact(&mut report);
            assert!(!to_json(&report).contains("secret"), "{}", to_json(&report));
            assert!(to_json(&report).contains("See run.py:7."));
            let once = report.clone();
            redact(&mut report);
            assert_eq!(report, once);
        }
    }
}
