//! Whether the program may have stored what seems to be of a library's making: the library's code has such a statement, and
//! so has the program's own.

use std::hash::{DefaultHasher, Hash, Hasher};

use tree_sitter::Node;

use super::cache::Cache;
use super::container::put;
use super::remembered::state_of;
use super::sources::{Program, Sources};
use super::stores::stores;
use super::syntax::{Syntax, all, around};
use super::written::{class_of_variable, is_own_object};
use crate::capture::is_library_file;
use crate::diagnose::case::short;
use crate::diagnose::known::known;
use crate::model::report::{Leak, Node as Object, NodeKind, Report, Step};

/// By the state of the program's files and the objects of the cycle.
static KNOWN: Cache<u64, bool> = Cache::new(512);

/// Of leaks that a library's code alone seems to have made, says that this is not known where the program's own code may
/// have stored one of the references.
///
/// Reads files, which may take a while: never call it while the program waits for a collection.
pub fn doubt_libraries(report: &mut Report, program: &Program) {
    let mut sources = Sources::new(program);
    let files = state_of(program);
    for leak in &mut report.leaks {
        let made_by = leak.made_by.as_ref();
        let is_librarys = made_by.is_some_and(|it| is_library_file(&it.file));
        if is_librarys && known(leak).is_none() && is_doubted(leak, files, &mut sources) {
            leak.made_by = None;
        }
    }
}

/// As [`may_be_programs`], asked once while the program's files are as they are: a check may find the same leak in each test.
fn is_doubted(leak: &Leak, files: u64, sources: &mut Sources) -> bool {
    let mut hasher = DefaultHasher::new();
    (files, &leak.made_by).hash(&mut hasher);
    for step in &leak.cycle {
        (&step.type_name, &step.label, &step.edge).hash(&mut hasher);
    }
    let asked = hasher.finish();
    KNOWN.get(&asked).unwrap_or_else(|| {
        let may_be = may_be_programs(leak, sources);
        KNOWN.insert(asked, may_be);
        may_be
    })
}

fn may_be_programs(leak: &Leak, sources: &mut Sources) -> bool {
    let nodes = &leak.graph.nodes;
    let object = |step: &Step| nodes.get(step.node? as usize);
    let following = leak.cycle.iter().cycle().skip(1);
    let package = leak.made_by.as_ref().map(|it| package_of(&it.file));
    leak.cycle.iter().zip(following).any(|(step, next)| {
        let (Some(owner), Some(target)) = (object(step), object(next)) else {
            return false;
        };
        let attribute = step.edge.strip_prefix('.').filter(|_| is_instance(owner));
        let (Some(attribute), Some(package)) = (attribute, &package) else {
            return false;
        };
        // What cannot be read may have stored it.
        sources
            .load_all_having(&[attribute, package])
            .is_none_or(|files| {
                let mut read = files.iter().filter_map(|file| sources.get(file));
                read.any(|syntax| stores_in(syntax, attribute, owner, target))
            })
    })
}

/// The name by which programs import the package or the module that a library's file is of.
fn package_of(file: &str) -> String {
    let file = file.replace('\\', "/");
    let folders = ["/site-packages/", "/dist-packages/", "/lib/python3"];
    let place = folders.iter().find_map(|folder| {
        let (_, place) = file.rsplit_once(folder)?;
        // `.12/queue.py`
        Some(if folder.ends_with('3') {
            place.split_once('/')?.1
        } else {
            place
        })
    });
    let top = place.unwrap_or(&file).split('/').next().unwrap_or_default();
    top.split('.').next().unwrap_or_default().to_owned()
}

fn is_instance(object: &Object) -> bool {
    matches!(object.kind, NodeKind::Object | NodeKind::Buffer)
}

/// True if a statement of a file stores something in an attribute of an object that may be this one, or puts it into the
/// container that is there.
fn stores_in(syntax: &Syntax, attribute: &str, owner: &Object, target: &Object) -> bool {
    let is_owners = |class: Node<'_>| {
        let name = class.child_by_field_name("name");
        name.is_some_and(|name| syntax.of(name) == short(&owner.type_name))
    };
    let may_be_owner = |node, receiver: Option<Node<'_>>| {
        let Some(receiver) = receiver else {
            return false;
        };
        let name = syntax.of(receiver);
        // Another class sets its own.
        let class = match is_own_object(syntax, node, name) {
            true => around(node, &["class_definition"]),
            false => class_of_variable(syntax, node, name),
        };
        class.is_none_or(is_owners)
    };
    let stored = stores(syntax, attribute).into_iter();
    let mut stored = stored.filter(|store| store.is_named);
    if stored.any(|store| may_be_owner(store.node, store.receiver)) {
        return true;
    }
    target.kind == NodeKind::Container
        && all(syntax.root()).into_iter().any(|node| {
            let put = put(syntax, node, attribute);
            put.is_some_and(|put| may_be_owner(node, put.receiver))
        })
}

#[cfg(test)]
mod tests {
    use super::package_of;

    #[test]
    fn files_are_of_the_package_that_is_imported() {
        let cases = [
            (
                "/env/lib/python3.12/site-packages/torch/nn/module.py",
                "torch",
            ),
            ("/env/lib/python3.12/site-packages/six.py", "six"),
            ("/usr/lib/python3/dist-packages/yaml/__init__.py", "yaml"),
            ("/usr/lib/python3.12/asyncio/tasks.py", "asyncio"),
            ("/usr/lib/python3.12/queue.py", "queue"),
            ("C:\\Python312\\Lib\\site-packages\\acme\\core.py", "acme"),
        ];
        for (file, package) in cases {
            assert_eq!(package_of(file), package, "{file}");
        }
    }
}
