//! # Callback of a weak reference
//!
//! An object keeps a `weakref.ref` whose callback is one of its own methods, or a function that
//! captures it.
//!
//! **Why it leaks.** A weak reference refers weakly to its object, but strongly to its callback.
//!
//! ```python
//! self.watch = weakref.ref(batch, self.on_gone)
//! ```
//!
//! Instead, use a callback that also refers to the owner weakly:
//!
//! ```python
//! on_gone = weakref.WeakMethod(self.on_gone)
//! self.watch = weakref.ref(batch, lambda ref: on_gone() and on_gone()(ref))
//! ```
//!
//! `weakref.finalize(self, self.close)` is worse: the registry of finalizers keeps the method, so the
//! object is never garbage and no collection will free it.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, bare_name, spoken};
use crate::diagnose::remedy::Finding;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (position, _) = case.find(|step| {
        step.object.description.kind == ObjectKind::Weakref
            && *step.name == ReferenceName::Attribute("__callback__".to_owned())
    })?;
    let keeper = case.keeper(position)?;
    let callback = case.steps().nth((position + 1) % case.cycle.nodes.len())?;
    let keeps = match callback.name {
        ReferenceName::Closure(variable) => format!(" that captures `{variable}`"),
        _ => String::new(),
    };
    let finding = Finding::new(format!(
        "`{}` {} a weak reference, but a weak reference keeps its callback, here {}{}{keeps}, which \
         leads back to its owner.",
        keeper.name(),
        keeper.verb(),
        spoken(callback.object),
        at(callback.object),
    ));
    let attribute = keeper.attribute;
    let label = bare_name(callback.object);
    let own = keeper.plainly && keeper.is(callback.next) && keeper.is_own();
    let weakly = case.weakly(callback.edge);
    let finding = match weakly {
        Some((slots, kept)) => finding.remedy(
            callback.edge,
            format!("let the callback refer weakly to the object{slots}{kept}"),
        ),
        None => return Some(finding.remedy(keeper.edge, case.removal(keeper.edge))),
    };
    let finding = match (callback.object.description.kind, callback.name) {
        (ObjectKind::Method, _) if own => finding.code(
            format!("self.{attribute} = weakref.ref(..., self.{label})"),
            format!(
                "{label} = weakref.WeakMethod(self.{label})\n\
                 self.{attribute} = weakref.ref(..., lambda ref: {label}() and {label}()(ref))"
            ),
        ),
        (ObjectKind::Function, ReferenceName::Closure(variable)) if own && label == "<lambda>" => {
            finding.code(
                format!("self.{attribute} = weakref.ref(..., lambda ref: use({variable}))"),
                format!(
                    "weak = weakref.ref({variable})\n\
                     self.{attribute} = weakref.ref(..., lambda ref: weak() and use(weak()))"
                ),
            )
        }
        _ => finding,
    };
    Some(finding.remedy(keeper.edge, case.removal(keeper.edge)))
}
