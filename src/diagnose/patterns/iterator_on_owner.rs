//! # Iterator stored on its source
//!
//! An object keeps a `map`, `filter`, `zip`, an `itertools` object or another iterator that leads back
//! to the object: over itself, over one of its generators, or with one of its methods.
//!
//! **Why it leaks.** An iterator refers to what it reads from and to the function that it calls.
//!
//! ```python
//! self.samples = map(self.load, paths)
//! ```
//!
//! Instead, create the iterator where it is used:
//!
//! ```python
//! def __iter__(self):
//!     return map(self.load, self.paths)
//! ```

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, short, spoken};
use crate::diagnose::remedy::Finding;
use crate::model::words::a;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (position, step) = case.find(|step| {
        step.object.description.kind == ObjectKind::Instance
            && *step.name == ReferenceName::Unnamed
            && is_iterator(&step.object.description.type_name)
    })?;
    let keeper = case.keeper(position)?;
    let class = short(&step.object.description.type_name);
    let next = if keeper.is(step.next) {
        "the object itself".to_owned()
    } else {
        format!(
            "{}{}, which leads back to the object",
            spoken(step.next),
            at(step.next)
        )
    };
    let finding = Finding::new(format!(
        "`{}` {} {} that refers to {next}.",
        keeper.name(),
        keeper.verb(),
        a(class),
    ));
    let finding = finding.remedy(
        keeper.edge,
        format!(
            "make the iterator where it is used, if it begins anew each time, or {}",
            case.removal(keeper.edge)
        ),
    );
    if !keeper.plainly || !keeper.is_own() {
        return Some(finding);
    }
    let made = match (class.ends_with("iterator"), keeper.is(step.next)) {
        (true, true) => "iter(self)".to_owned(),
        (true, false) => return Some(finding),
        // The program calls something else, such as `itertools.tee`, which makes several `_tee` objects.
        (false, _) if class.starts_with('_') => return Some(finding),
        (false, _) => format!("{class}(...)"),
    };
    let attribute = keeper.attribute;
    Some(finding.code(
        format!("self.{attribute} = {made}"),
        format!("def {attribute}(self):\n    return {made}"),
    ))
}

/// True for the iterators of builtins and `itertools`, which have no named references.
fn is_iterator(type_name: &str) -> bool {
    type_name.starts_with("itertools.")
        || matches!(
            type_name,
            "map" | "filter" | "zip" | "enumerate" | "reversed"
        )
        || (type_name.ends_with("iterator") && !type_name.contains('.'))
}
