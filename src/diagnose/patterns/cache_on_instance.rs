//! # Cache stored on an instance
//!
//! An object stores a `functools.lru_cache` (or `functools.cache`) wrapper of its own method, or of a
//! function that captures it.
//!
//! **Why it leaks.** The wrapper refers to what it wraps, and a bound method refers to its object. The
//! cached results are kept as long.
//!
//! ```python
//! self.size = lru_cache(maxsize=None)(self._size)
//! ```
//!
//! Use instead a cached function at module level that is given the values it needs, or
//! `functools.cached_property`, which stores only the result.

use super::{Advice, Pattern};
use crate::diagnose::case::{Case, at, short, spoken};
use crate::heap::{ObjectKind, ReferenceName};

pub const PATTERN: Pattern = Pattern {
    name: "cache-on-instance",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    let (position, step) =
        case.find(|step| step.object.description.type_name == "functools._lru_cache_wrapper")?;
    let keeper = case.keeper(position)?;
    if *step.name != ReferenceName::Attribute("__wrapped__".to_owned()) {
        return None;
    }
    let wrapped = step.next;
    let text = format!(
        "`{}` {} an `lru_cache` of {}{}, which leads back to its owner; what it has cached is kept \
         as long. Cache a function at module level that is given the values it needs.",
        keeper.name(),
        if keeper.plainly { "is" } else { "contains" },
        spoken(wrapped),
        at(wrapped),
    );
    let attribute = keeper.attribute;
    let name = short(&wrapped.description.label);
    Some(
        if keeper.plainly && wrapped.description.kind == ObjectKind::Method {
            Advice::new(
                text,
                format!("self.{attribute} = lru_cache(…)(self.{name})"),
                format!("@lru_cache  # at module level\ndef {attribute}(…):  # no self"),
            )
        } else {
            Advice::words(text)
        },
    )
}
