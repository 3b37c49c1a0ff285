//! The cells of a notebook: IPython runs each as a file with a temporary name.

use std::collections::HashMap;

use super::redact::{locations, without_folder};
use super::report::Report;
use super::source::SourceLines;

/// What cells are called, such as `In[5]`, by the file that their code is from.
pub type Cells = HashMap<String, String>;

/// Names cells in place of their files.
pub fn name_cells(report: &mut Report, cells: &Cells) {
    for leak in report.leaks.iter_mut().filter(|_| !cells.is_empty()) {
        let mut named: Vec<(String, &String)> = Vec::new();
        for location in locations(leak) {
            if let Some(cell) = cells.get(&location.file) {
                named.push((format!("{}:", without_folder(&location.file)), cell));
                location.file.clone_from(cell);
            }
        }
        named.sort_unstable();
        named.dedup();
        let shown = leak.source.iter_mut().chain(&mut leak.candidate_sources);
        for source in shown {
            name_cell(source, cells);
        }
        let advice = &mut leak.advice;
        let code = [advice.before.as_mut(), advice.after.as_mut()];
        for text in code.into_iter().flatten().chain([&mut advice.text]) {
            for (file, cell) in &named {
                *text = text.replace(file.as_str(), &format!("{cell}:"));
            }
        }
    }
}

/// Names a cell in place of the file of some lines.
pub fn name_cell(source: &mut SourceLines, cells: &Cells) {
    if let Some(cell) = cells.get(&source.file) {
        source.file.clone_from(cell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn places_and_advice_name_the_cell() {
        let mut report = samples::callback();
        let at = locations(&mut report.leaks[0]);
        let file = at.first().expect("a place").file.clone();
        let short = format!("{}:", without_folder(&file));
        report.leaks[0].advice.text = format!("`f` is a lambda ({short}5).");
        let before = report.clone();
        name_cells(&mut report, &Cells::new());
        assert_eq!(report, before);
        name_cells(
            &mut report,
            &Cells::from([(file.clone(), "In[3]".to_owned())]),
        );
        assert_eq!(report.leaks[0].advice.text, "`f` is a lambda (In[3]:5).");
        let at = locations(&mut report.leaks[0]);
        assert!(at.iter().all(|it| it.file != file) && at.iter().any(|it| it.file == "In[3]"));
    }
}
