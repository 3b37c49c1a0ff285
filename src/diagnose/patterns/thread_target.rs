//! # Thread, timer or executor with a method of its owner
//!
//! An object keeps a `threading.Thread`, a `threading.Timer` or an executor that was given one of the
//! object's methods, or the object as an argument.
//!
//! **Why it leaks.** A thread drops its target and arguments when it has run, so one that never runs
//! keeps them. A timer keeps its function even after it has fired or was cancelled. An executor keeps
//! its initializer even after `shutdown()`.
//!
//! ```python
//! self.timer = threading.Timer(60, self.save)
//! ```
//!
//! Instead, set `self.timer = None` after `cancel()`, or use a function at module level or a
//! `weakref.WeakMethod`.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, short, spoken};
use crate::diagnose::remedy::Finding;
use crate::graph::LeakNode;
use crate::model::words::a;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (position, step) = case.find(|step| {
        step.object.description.kind == ObjectKind::Instance
            && rule(step.object, step.name).is_some()
    })?;
    let (why, end) = rule(step.object, step.name)?;
    let keeper = case.keeper(position)?;
    let class = short(&step.object.description.type_name);
    let given = match step.next.description.kind {
        ObjectKind::Function | ObjectKind::Method => spoken(step.next),
        _ => "an argument".to_owned(),
    };
    let finding = Finding::new(format!(
        "`{}` {} {} that was given {given}, which leads back to its owner. {why}.",
        keeper.name(),
        keeper.verb(),
        a(class),
    ))
    .remedy(keeper.edge, case.removal(keeper.edge));
    if !keeper.plainly || !keeper.is_own() || end.is_empty() {
        return Some(finding);
    }
    let before = format!("self.{}{end}", keeper.attribute);
    let after = format!("{before}\nself.{} = None", keeper.attribute);
    Some(finding.code(before, after))
}

/// Why an object of the standard library keeps what it was given, and the call that ends its use.
fn rule(object: &LeakNode, name: &ReferenceName) -> Option<(&'static str, &'static str)> {
    let ReferenceName::Attribute(name) = name else {
        return None;
    };
    match (object.description.type_name.as_str(), name.as_str()) {
        ("threading.Timer", "function" | "args" | "kwargs") => Some((
            "A timer keeps its function even after it has fired or was cancelled",
            ".cancel()",
        )),
        ("threading.Thread", "_target" | "_args" | "_kwargs") => Some((
            "A thread drops its target when it has run, and this one has not",
            "",
        )),
        (
            "concurrent.futures.thread.ThreadPoolExecutor"
            | "concurrent.futures.process.ProcessPoolExecutor",
            "_initializer" | "_initargs",
        ) => Some((
            "An executor keeps its initializer even after `shutdown()`",
            ".shutdown()",
        )),
        _ => None,
    }
}
