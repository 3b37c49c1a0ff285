//! An owner of what grows, as reports name it, and the places of the program's files that name it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tree_sitter::Node;

use super::family::{bases, decorators, name_of};
use super::files::words;
use super::held::{is_imported, last_part};
use super::mention::is_fresh;
use super::reference::stands_for;
use super::shrinking::given_to;
use super::sources::{Program, Source, Sources};
use super::stores::is_called;
use super::syntax::{Syntax, all, around, children, functions_around, is_named, lines, scope};
use super::written::{Own, own_object};
use crate::diagnose::case::short;

/// So many lines of an owner are named at most.
pub const LINES: usize = 3;
/// No more files than these are read for one name: a step of the program waits meanwhile.
pub const FILES: usize = 12;
/// So many uses of a name in a file times the bytes of the file, in all files: beyond it, the look at each use, for which the
/// file is walked again, would take longer than a step of the program may wait.
const WORK: usize = 2 << 20;
/// So many classes are looked for from which one derives.
const CLASSES: usize = 64;
/// Classes that add to no attribute of another's.
const ROOTS: [&str; 9] = [
    "ABC",
    "Callback",
    "Dataset",
    "Generic",
    "IterableDataset",
    "LightningModule",
    "Module",
    "Protocol",
    "object",
];
/// So an attribute is reached by a computed name.
const BY_NAME: [&str; 5] = ["getattr", "setattr", "delattr", "__setattr__", "attrgetter"];

/// What grows: a variable or an attribute, or what is behind these keys of it.
#[derive(Debug, PartialEq)]
pub struct Owner<'a> {
    pub named: Named<'a>,
    pub keys: Vec<&'a str>,
    /// The names of the variables and attributes that lead to it.
    pub path: Vec<&'a str>,
    /// The function whose variable leads to it, if one does.
    pub function: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Named<'a> {
    Global {
        module: &'a str,
        name: &'a str,
    },
    /// Without function and file, the variable that one function has for those within it.
    Local {
        function: &'a str,
        file: &'a str,
        line: usize,
        name: &'a str,
    },
    Attribute {
        class: &'a str,
        name: &'a str,
    },
    /// An object of a class, such as one that derives from `dict`: `self` in its methods.
    Object {
        class: &'a str,
    },
}

/// The files with functions of other modules that are given the owner first: `trim(self.items, 100)`.
fn helpers(owner: &Owner<'_>, files: &[String], sources: &mut Sources) -> Vec<String> {
    let known = sources.of(files);
    let nodes = known.iter().flat_map(|it| {
        let nodes = all(it.syntax.root()).into_iter();
        nodes.map(|node| (it.syntax, node))
    });
    let named = nodes.filter(|(syntax, node)| last_part(syntax.of(*node)) == owner.name());
    let names: BTreeSet<String> = named
        .filter_map(|(syntax, node)| given_to(syntax, node))
        .filter(|name| known.iter().any(|it| is_imported(it.syntax, name)))
        .map(str::to_owned)
        .collect();
    let found = names
        .iter()
        .take(FILES)
        .filter_map(|name| sources.load_few_having(name, FILES));
    found.flatten().collect()
}

/// The files of a program, and the owner that is named in them.
pub struct Search<'a, 's> {
    pub owner: &'a Owner<'a>,
    pub sources: &'a [Source<'s>],
    program: &'a Program,
    /// All classes of the files, by name.
    classes: Classes<'s>,
    /// The owner's class and those that it derives from, and whether the files have each of them once.
    pub family: (Vec<String>, bool),
}

type Classes<'s> = BTreeMap<String, Vec<(&'s Syntax, Node<'s>)>>;

/// Where the code of the files is not all that may come to it.
pub struct Unknown;

impl<'a> Owner<'a> {
    /// Takes a name such as ``local `t` in `main`, train.py:20, thread MainThread (Trainer) → .meters (dict) → ['loss']``
    /// apart; `None` for one of another form.
    pub fn parse(owner: &'a str) -> Option<Self> {
        let mut parts: Vec<&str> = owner.split(" → ").collect();
        let mut keys = Vec::new();
        while let Some(key) = parts.pop_if(|part| part.starts_with('[')) {
            keys.push(key.rsplit_once(" (").map_or(key, |(key, _)| key));
        }
        keys.reverse();
        let last = parts.pop()?;
        let named = match (last.strip_prefix('.'), parts.last()) {
            (Some(attribute), Some(holder)) => {
                let (_, noun) = holder.strip_suffix(')')?.rsplit_once('(')?;
                let class = noun.strip_prefix("class ").unwrap_or(noun);
                let is_class = |it: &&str| !it.contains([' ', ',']);
                Named::Attribute {
                    class: Some(short(class)).filter(is_class)?,
                    name: attribute.split(' ').next()?,
                }
            }
            (None, Some(module)) if parts.len() == 1 => Named::Global {
                module: module.strip_prefix("module `")?.strip_suffix('`')?,
                name: last.strip_prefix('`')?.split('`').next()?,
            },
            (None, Some(_)) => {
                // A suspended generator has local variables too.
                let name = last.strip_prefix("closure variable '");
                Named::Local {
                    function: "",
                    file: "",
                    line: 0,
                    name: name.or(last.strip_prefix("local '"))?.split('\'').next()?,
                }
            }
            (None, None) => {
                let (name, rest) = last.strip_prefix("local `")?.split_once("` in `")?;
                let (function, place) = rest.split_once("`, ")?;
                let (file, rest) = place.split_once(':')?;
                let end = rest
                    .find(|it: char| !it.is_ascii_digit())
                    .unwrap_or(rest.len());
                Named::Local {
                    function: short(function),
                    file,
                    line: rest[..end].parse().ok()?,
                    name,
                }
            }
            (Some(_), None) => return None,
        };
        let function = parts.first().unwrap_or(&last).strip_prefix("local `");
        let function = function.and_then(|it| it.split("` in `").nth(1)?.split('`').next());
        let path = parts.iter().map(|part| {
            let part = part
                .trim_start_matches("local ")
                .trim_start_matches(['.', '`']);
            part.split(['`', ' ']).next().unwrap_or_default()
        });
        Some(Self {
            named,
            keys,
            path: path.collect(),
            function: function.map(short),
        })
    }

    /// The files that have the owner's name; those that have its class too if others are many.
    pub fn files(&self, sources: &mut Sources) -> Option<Vec<String>> {
        let mut files = match (sources.load_few_having(self.name(), FILES), &self.named) {
            (Some(files), _) => files,
            (None, Named::Attribute { class, name }) => sources.load_all_having(&[class, name])?,
            (None, _) => return None,
        };
        if let Named::Local { function, .. } = self.named
            && !function.is_empty()
        {
            files.extend(sources.load_few_having(function, FILES).unwrap_or_default());
        }
        files.extend(helpers(self, &files, sources));
        files.sort_unstable();
        files.dedup();
        Some(files)
    }

    pub fn name(&self) -> &'a str {
        match self.named {
            Named::Global { name, .. }
            | Named::Local { name, .. }
            | Named::Attribute { name, .. } => name,
            Named::Object { class } => class,
        }
    }

    /// Of an attribute, the classes whose methods have the object as `self`.
    fn family(&self, classes: &Classes<'_>) -> (Vec<String>, bool) {
        match self.named {
            Named::Attribute { class, .. } | Named::Object { class } => ancestors(class, classes),
            _ => (Vec::new(), true),
        }
    }
}

impl<'a, 's> Search<'a, 's> {
    pub fn new(owner: &'a Owner<'a>, program: &'a Program, sources: &'a [Source<'s>]) -> Self {
        let classes = classes(sources);
        Self {
            family: owner.family(&classes),
            owner,
            sources,
            program,
            classes,
        }
    }

    /// True for a name that the files have so often that a look at each place would take long.
    pub fn is_common(&self) -> bool {
        let name = self.owner.name();
        let texts = self.sources.iter().map(|it| it.syntax.text());
        let work = texts.map(|text| words(text).filter(|it| *it == name).count() * text.len());
        work.sum::<usize>() > WORK
    }

    /// True for the file of the owner's module.
    pub fn is_own_file(&self, file: &str) -> bool {
        let Named::Global { module, .. } = self.owner.named else {
            return false;
        };
        if module == "__main__" {
            let is_cell = self.program.cells.contains_key(file);
            return is_cell || self.program.main.as_deref() == Some(file);
        }
        let mut folders = Path::new(file).with_extension("");
        if folders.ends_with("__init__") {
            folders.pop();
        }
        folders.ends_with(module.replace('.', "/"))
    }

    /// The function that has a local variable, if it is no parameter.
    pub fn function(&self, syntax: &'s Syntax) -> Option<Node<'s>> {
        let Named::Local {
            function,
            line,
            name,
            ..
        } = self.owner.named
        else {
            return None;
        };
        let nodes = all(syntax.root()).into_iter();
        let mut functions = nodes.filter(|it| it.kind() == "function_definition");
        if function.is_empty() {
            let binds = |it: &Node<'s>| {
                let mut bindings = syntax.bindings(*it, name).into_iter();
                bindings.any(|binding| scope(binding) == Some(*it))
            };
            let only = functions.find(binds)?;
            return functions.all(|it| !binds(&it)).then_some(only);
        }
        let mut functions = functions.filter(|it| {
            let (first, last) = lines(*it);
            (first..=last).contains(&line) && is_named(syntax, *it, function)
        });
        let innermost = functions.next_back()?;
        let parameters = innermost.child_by_field_name("parameters")?;
        syntax
            .bindings(parameters, name)
            .is_empty()
            .then_some(innermost)
    }

    /// The name of the owner, if a node is that.
    pub fn mention(&self, source: Source<'s>, node: Node<'s>) -> Result<Option<Node<'s>>, Unknown> {
        let syntax = source.syntax;
        if let Named::Object { .. } = self.owner.named {
            return Ok(self.is_self(syntax, node).then_some(node));
        }
        let name = self.owner.name();
        match node.kind() {
            // `getattr(self, name)`
            "call" => {
                let function = node.child_by_field_name("function");
                let function = function.map_or("", |it| last_part(syntax.of(it)));
                let arguments = node.child_by_field_name("arguments").map(children);
                let is_written = |it: &Node<'_>| {
                    it.kind() == "string" && !syntax.of(*it).starts_with(['f', 'F'])
                };
                let by_any = BY_NAME.contains(&function)
                    && arguments.is_some_and(|all| !all.iter().take(2).any(is_written));
                match by_any && matches!(self.owner.named, Named::Attribute { .. }) {
                    true => Err(Unknown),
                    false => Ok(None),
                }
            }
            "string_content" if syntax.of(node) == name && !is_slot(syntax, node) => Err(Unknown),
            "keyword_argument" => {
                let is_it = node
                    .child_by_field_name("name")
                    .is_some_and(|it| syntax.of(it) == name);
                let value = node.child_by_field_name("value");
                let is_new = value.is_some_and(|it| is_fresh(syntax, it));
                let is_attribute = matches!(self.owner.named, Named::Attribute { .. });
                match is_it && is_attribute && !is_new {
                    true => Err(Unknown),
                    false => Ok(None),
                }
            }
            "attribute" => self.attribute(source, node),
            "identifier" if syntax.of(node) == name && syntax.is_variable(node) => {
                self.variable(source, node)
            }
            _ => Ok(None),
        }
    }

    fn attribute(&self, source: Source<'s>, node: Node<'s>) -> Result<Option<Node<'s>>, Unknown> {
        let syntax = source.syntax;
        if !is_called(syntax, node, self.owner.name()) {
            return Ok(None);
        }
        let holder = node.child_by_field_name("object");
        let holder = holder.map_or("", |it| syntax.of(it));
        let own = match own_object(syntax, node, holder) {
            Own::Object(class) | Own::Class(class) => Some(name_of(syntax, class)),
            Own::No => None,
        };
        match self.owner.named {
            Named::Attribute { .. } => {
                let base = own.or_else(|| self.classes.contains_key(holder).then_some(holder));
                let is_it = base.is_none_or(|base| self.is_family(base));
                Ok(is_it.then_some(node))
            }
            Named::Global { module, .. } => match own {
                Some(_) => Ok(None),
                None if holder == module || holder == last_part(module) => Ok(Some(node)),
                None if is_alias(syntax, holder, module) => Ok(Some(node)),
                None => Err(Unknown),
            },
            Named::Local { .. } | Named::Object { .. } => Ok(None),
        }
    }

    /// True for `self` in a method of the owner's class.
    pub fn is_self(&self, syntax: &'s Syntax, node: Node<'s>) -> bool {
        node.kind() == "identifier"
            && match own_object(syntax, node, syntax.of(node)) {
                Own::Object(class) => self.is_family(name_of(syntax, class)),
                _ => false,
            }
    }

    fn variable(&self, source: Source<'s>, node: Node<'s>) -> Result<Option<Node<'s>>, Unknown> {
        let syntax = source.syntax;
        let name = self.owner.name();
        match self.owner.named {
            Named::Object { .. } => Ok(None),
            Named::Attribute { .. } => {
                // What stands in the body of a class is an attribute of it.
                let body = scope(node).filter(|it| it.kind() == "class_definition");
                let body = body.filter(|it| self.is_family(name_of(syntax, *it)));
                // Who makes an object of a data class may give it any container.
                match body.is_some_and(|it| decorators(syntax, it).next().is_some()) {
                    true => Err(Unknown),
                    false => Ok(body.map(|_| node)),
                }
            }
            Named::Local { file, .. } => {
                let is_here =
                    file.is_empty() || source.file.rsplit(['/', '\\']).next() == Some(file);
                let function = self.function(syntax).filter(|_| is_here);
                let is_it = function.is_some_and(|it| stands_for(syntax, node, name, Some(it)));
                Ok(is_it.then_some(node))
            }
            Named::Global { module, .. } => {
                if !stands_for(syntax, node, name, None) {
                    return Ok(None);
                }
                if self.is_own_file(source.file) {
                    return Ok(Some(node));
                }
                let bindings = syntax.bindings(syntax.root(), name);
                let mut own = bindings.into_iter().filter(|it| scope(*it).is_none());
                match own.next() {
                    // From nowhere, as by `from module import *`.
                    None => Err(Unknown),
                    Some(binding) => {
                        let import = around(binding, &["import_from_statement"]);
                        let from = import.and_then(|it| it.child_by_field_name("module_name"));
                        match from.map(|it| last_part(syntax.of(it))) {
                            Some(from) if from == last_part(module) => Ok(Some(node)),
                            // Another module may have it from there.
                            Some(_) => Err(Unknown),
                            None => Ok(None),
                        }
                    }
                }
            }
        }
    }

    /// True if no two of the owner's classes have a method of this name, of which one would be called in place of the other.
    pub fn is_one(&self, method: &str) -> bool {
        let classes = self.family.0.iter().filter_map(|it| self.classes.get(it));
        let having = classes.flatten().filter(|(syntax, class)| {
            let nodes = all(*class).into_iter();
            let mut methods = nodes.filter(|it| it.kind() == "function_definition");
            methods.any(|it| scope(it) == Some(*class) && is_named(syntax, it, method))
        });
        method == "__init__" || having.count() < 2
    }

    /// True for what stands in a method in whose place that of a class is called that derives from its own.
    pub fn is_overridden(&self, syntax: &'s Syntax, node: Node<'s>) -> bool {
        let Some(function) = functions_around(node).pop() else {
            return false;
        };
        let class = around(function, &["class_definition"]).map(|it| name_of(syntax, it));
        let name = function.child_by_field_name("name").map(|it| syntax.of(it));
        let is_family = class.is_some_and(|it| self.is_family(it));
        let derived = self
            .family
            .0
            .iter()
            .take_while(|it| Some(it.as_str()) != class);
        let derived = derived.filter_map(|it| self.classes.get(it)).flatten();
        let mut methods = derived.flat_map(|(syntax, class)| {
            let nodes = all(*class).into_iter();
            let methods = nodes.filter(|it| it.kind() == "function_definition");
            methods.map(|it| (*syntax, it))
        });
        is_family
            && methods.any(|(syntax, it)| {
                let is_it = name.is_some_and(|name| is_named(syntax, it, name));
                is_it && !all(it).into_iter().any(|it| syntax.of(it) == "super")
            })
    }

    /// True if several classes of the files have the name of the owner's.
    pub fn is_ambiguous(&self) -> bool {
        match self.owner.named {
            Named::Attribute { class, .. } | Named::Object { class } => {
                self.classes.get(class).is_some_and(|it| it.len() > 1)
            }
            _ => false,
        }
    }

    /// True if the files have a class.
    pub fn has_class(&self, class: &str) -> bool {
        self.classes.contains_key(class)
    }

    pub fn is_family(&self, class: &str) -> bool {
        self.family.0.iter().any(|it| it == class)
    }
}

/// True for a name that only `import module as name` binds.
fn is_alias(syntax: &Syntax, name: &str, module: &str) -> bool {
    let mut bindings = syntax.bindings(syntax.root(), name).into_iter();
    let is_import = |binding: Node<'_>| {
        let import = around(binding, &["aliased_import"]);
        let imported = import.and_then(|it| it.child_by_field_name("name"));
        imported.is_some_and(|it| syntax.of(it) == module)
            && around(binding, &["import_statement"]).is_some()
    };
    bindings.next().is_some_and(is_import) && bindings.all(is_import)
}

/// True for a name in `__slots__`.
fn is_slot(syntax: &Syntax, text: Node<'_>) -> bool {
    let target = around(text, &["assignment"]).and_then(|it| it.child_by_field_name("left"));
    target.is_some_and(|it| syntax.of(it) == "__slots__")
}

/// All classes of some files, by name.
fn classes<'s>(sources: &[Source<'s>]) -> Classes<'s> {
    let mut found = Classes::new();
    for source in sources {
        let nodes = all(source.syntax.root()).into_iter();
        for class in nodes.filter(|it| it.kind() == "class_definition") {
            let name = name_of(source.syntax, class).to_owned();
            found.entry(name).or_default().push((source.syntax, class));
        }
    }
    found
}

/// The names of a class and of those that it derives from, and whether the files have each of them once.
fn ancestors(class: &str, classes: &Classes<'_>) -> (Vec<String>, bool) {
    let mut names = vec![class.to_owned()];
    let (mut at, mut is_whole) = (0, true);
    while let Some(name) = names.get(at).cloned() {
        match classes.get(&name).map(Vec::as_slice) {
            Some([(syntax, class)]) => {
                for base in bases(*class) {
                    let base = last_part(syntax.of(base)).to_owned();
                    if !names.contains(&base) && names.len() < CLASSES {
                        names.push(base);
                    }
                }
            }
            Some(_) => is_whole = false,
            None => is_whole &= at > 0 && ROOTS.contains(&name.as_str()),
        }
        at += 1;
    }
    (names, is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(owner: &str) -> Option<Owner<'_>> {
        Owner::parse(owner)
    }

    #[test]
    fn owners_are_taken_apart() {
        let local = "local `t` in `Main.run`, g1.py:20, thread MainThread";
        let named = |owner| parsed(owner).map(|it| (it.named, it.keys));
        assert_eq!(
            named(local),
            Some((
                Named::Local {
                    function: "run",
                    file: "g1.py",
                    line: 20,
                    name: "t"
                },
                vec![]
            ))
        );
        let attribute = |class, name, keys| Some((Named::Attribute { class, name }, keys));
        let whole = format!("{local} (Trainer) → .meters (dict) → ['loss']");
        assert_eq!(
            named(&whole),
            attribute("Trainer", "meters", vec!["['loss']"])
        );
        assert_eq!(
            named("module `m` → `S` (class a.S) → .all (list, 3 items)"),
            attribute("S", "all", vec![])
        );
        let closure = Named::Local {
            function: "",
            file: "",
            line: 0,
            name: "x",
        };
        for whole in [
            "module `m` → `f` (function f) → closure variable 'x'",
            "module `m` → `f` (generator f) → local 'x' (list)",
        ] {
            let closure = closure.clone();
            assert_eq!(named(whole), Some((closure, vec![])));
        }
        let global = Named::Global {
            module: "__main__",
            name: "OUT",
        };
        assert_eq!(named("module `__main__` → `OUT`"), Some((global, vec![])));
    }

    #[test]
    fn other_names_are_not_guessed_at() {
        assert_eq!(parsed("the process"), None);
        assert_eq!(parsed("running event loop → ._ready (deque) → [0]"), None);
        assert_eq!(parsed(""), None);
    }
}
