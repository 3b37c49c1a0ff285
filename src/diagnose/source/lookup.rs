//! Whether to look a method up when it is called finds the one that was stored.

use super::first_code;
use super::sources::Sources;
use super::stores::stores;
use super::taken::method;
use crate::model::report::Leak;

/// Advice after which the object calls what then has the name.
const BY_NAME: [&str; 2] = [
    "Look the method up when it is called, by its name.",
    "Leave out this assignment: the object finds the method of its class by the same name.",
];

/// Advises to give the reference up instead where the program may set another function under the method's name, on an
/// object or on a class.
pub fn keep_to_the_method(leak: &mut Leak, sources: &mut Sources) {
    let Some(sentence) = BY_NAME.into_iter().find(|it| leak.advice.text.contains(it)) else {
        return;
    };
    let Some((name, _)) = method(leak) else {
        return;
    };
    let is_kept = leak.patch.is_some();
    let files = sources.load_having(name, &leak.origin.files);
    // `self.run = self.run`, which is to be left out.
    let same = format!(".{name}");
    let is_set = files.is_none_or(|files| {
        sources.of(&files).iter().any(|source| {
            let mut values = stores(source.syntax, name).into_iter().map(|it| it.value);
            values.any(|it| !it.is_some_and(|value| source.syntax.of(value).ends_with(&same)))
        })
    });
    if is_kept || !is_set {
        return;
    }
    let stored = first_code(leak);
    let is_hidden = stored.rsplit_once('.').is_some_and(|(_, it)| it == name);
    let text = match is_hidden {
        true => format!("Delete `{stored}` when it is no longer needed."),
        false => format!("Set `{stored}` to None when it is no longer needed."),
    };
    leak.advice.text = leak.advice.text.replace(sentence, &text);
    leak.advice.before = None;
    leak.advice.after = None;
}
