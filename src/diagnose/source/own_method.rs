//! Where the program stores a method of a library's object on that object: `layer.run = layer.forward`.

use super::sources::Sources;
use super::stores::{Store, stores};
use super::syntax::Syntax;
use crate::model::report::Node as Object;

/// What a bound method is called in a report, before its name.
const BOUND_METHOD: &str = "bound method ";
/// In more files of the program than these, the attribute has a common name.
const FILES: usize = 16;

/// The file of the only statement of the program that stores anything in an attribute of this name, if it stores the
/// method there, on what the method is taken from. The files of a library's object say nothing of who stored it, but the
/// statement does.
pub fn file_of_its_only_store(
    attribute: &str,
    method: &Object,
    sources: &mut Sources,
) -> Option<String> {
    let (_, name) = method.label.strip_prefix(BOUND_METHOD)?.rsplit_once('.')?;
    let files = sources.load_few_having(attribute, FILES)?;
    let mut found = Vec::new();
    for source in sources.of(&files) {
        let all = stores(source.syntax, attribute).into_iter();
        found.extend(all.map(|store| (source, store)));
    }
    let [(source, store)] = found[..] else {
        return None;
    };
    is_of_its_object(source.syntax, &store, name).then(|| source.file.to_owned())
}

/// True for `layer.run = layer.forward` if the method is `forward`.
fn is_of_its_object(syntax: &Syntax, store: &Store<'_>, method: &str) -> bool {
    let Some((receiver, value)) = store.receiver.zip(store.value) else {
        return false;
    };
    let part = |name: &str| value.child_by_field_name(name).map(|it| syntax.of(it));
    let on = syntax.of(receiver);
    store.is_named
        && on != "self"
        && part("attribute") == Some(method)
        && part("object") == Some(on)
}
