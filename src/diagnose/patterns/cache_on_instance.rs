//! # Cache stored on an instance
//!
//! An object stores a `functools.lru_cache` (or `functools.cache`) wrapper of its own method, or of a
//! function that captures it.
//!
//! **Why it leaks.** The wrapper refers to what it wraps, and a bound method refers to its object. The
//! cached results stay alive as long as the object.
//!
//! ```python
//! self.size = lru_cache(maxsize=None)(self._size)
//! ```
//!
//! Instead, use a dict on the object, which is freed with it:
//!
//! ```python
//! def size(self, *args):
//!     if args not in self._size_cache:
//!         self._size_cache[args] = self._size(*args)
//!     return self._size_cache[args]
//! ```
//!
//! or a cached function at module level that receives the values it needs. For a method without
//! arguments, use `functools.cached_property`, which stores only the result.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, bare_name, is_cache, is_found_by_name, spoken};
use crate::diagnose::remedy::Finding;

pub fn recognise(case: &Case<'_>) -> Option<Finding> {
    let (position, step) = case.find(|step| is_cache(step.object))?;
    let keeper = case.keeper(position)?;
    // The cache refers to its function twice: in C, and by an attribute.
    let is_function = matches!(
        step.next.description.kind,
        ObjectKind::Function | ObjectKind::Method | ObjectKind::Partial
    );
    if *step.name != ReferenceName::Attribute("__wrapped__".to_owned()) && !is_function {
        return None;
    }
    let wrapped = step.next;
    let finding = Finding::new(format!(
        "`{}` {} an `lru_cache` of {}{}, which leads back to its owner and keeps the cached results \
         alive.",
        keeper.name(),
        keeper.verb(),
        spoken(wrapped),
        at(wrapped),
    ))
    .remedy(
        keeper.edge,
        "cache in a dict on the object, or cache a module-level function that receives the values \
         it needs",
    );
    let attribute = keeper.attribute;
    let name = bare_name(wrapped);
    let of_owner = wrapped.description.kind == ObjectKind::Method
        && is_found_by_name(wrapped)
        && case
            .steps()
            .any(|step| std::ptr::eq(step.object, wrapped) && keeper.is(step.next));
    Some(if keeper.plainly && keeper.is_own() && of_owner {
        let cache = format!("self._{}_cache", attribute.trim_start_matches('_'));
        finding.code(
            format!("self.{attribute} = lru_cache(maxsize=None)(self.{name})"),
            format!(
                "{cache} = {{}}\n\n\
                 def {attribute}(self, *args):\n    \
                     if args not in {cache}:\n        \
                         {cache}[args] = self.{name}(*args)\n    \
                     return {cache}[args]"
            ),
        )
    } else {
        finding
    })
}
