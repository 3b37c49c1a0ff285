//! What this room hands to the next ones: objects and references as plain data.

use std::borrow::Cow;
use std::fmt;

use crate::cpython::ObjectKind;

/// One object of a [`Snapshot`].
#[derive(Clone, Copy, Debug)]
pub struct SnapshotObject {
    /// Address of the object; valid only while the garbage it was taken from is held.
    pub address: usize,
    /// Address of its type.
    pub type_address: usize,
    pub kind: ObjectKind,
    /// The caller's verdict on the type; 0 for a type that holds no device buffer.
    pub verdict: u8,
    /// True for an object of the garbage itself, false for one that only the garbage holds.
    pub in_garbage: bool,
    /// References to the object that come from neither the snapshot nor its taker.
    pub outside_references: i64,
    /// Tells objects of equal type apart where that is cheap: for a function or a frame, its code.
    pub salt: u64,
}

/// A set of objects and the references between them, each once per reference.
///
/// Objects have the numbers 0 to `len() - 1`. The targets of object `i` are
/// `targets[first[i]..first[i + 1]]`.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub objects: Vec<SnapshotObject>,
    pub targets: Vec<u32>,
    pub first: Vec<u32>,
}

impl Snapshot {
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The objects that object `index` refers to, in the order of its type's `tp_traverse`.
    pub fn targets(&self, index: usize) -> &[u32] {
        match (self.first.get(index), self.first.get(index + 1)) {
            (Some(&from), Some(&to)) => &self.targets[from as usize..to as usize],
            _ => &[],
        }
    }
}

/// A place in source code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub file: String,
    /// From 1; 0 if unknown.
    pub line: u32,
}

/// Where a class is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassSource {
    /// Its qualified name, without its module.
    pub name: String,
    /// The file of its methods, or else of its module.
    pub file: Option<String>,
    /// The first line of its first method.
    pub line: Option<u32>,
}

/// True for files of installed packages and of the standard library.
pub fn is_library_file(file: &str) -> bool {
    let file = match file.contains('\\') {
        true => Cow::Owned(file.replace('\\', "/")),
        false => Cow::Borrowed(file),
    };
    file.contains("/site-packages/")
        || file.contains("/dist-packages/")
        || file.contains("/lib/python3.")
        || file.starts_with("<frozen ")
}

/// The folder or module of the installed package that a file belongs to; `None` for any other file.
pub fn package_of(file: &str) -> Option<&str> {
    let mut folders = file.split(['/', '\\']);
    folders.find(|&folder| folder == "site-packages" || folder == "dist-packages")?;
    folders.next()
}

/// True for a compiled module of the standard library, such as that of `asyncio.Future`, which knows no name of a program's.
pub fn is_standard_extension(file: &str) -> bool {
    let is_compiled = [".so", ".pyd"].iter().any(|end| file.ends_with(end));
    is_compiled && is_library_file(file) && package_of(file).is_none()
}

/// Whose code made a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// The interpreter's: every object of its kind has such a reference.
    Inherent,
    /// Not known.
    Unknown,
    /// Code at this place stores what it was given, so another may have wanted it.
    Given(Place),
    /// Code at this place, of its own accord.
    By(Place),
}

/// Whether `weakref.ref` takes an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeakReferences {
    Taken,
    /// If its class had `__weakref__` in its `__slots__`.
    WithSlot,
    /// Not an `int` or another object of varying size, whatever its class has.
    Never,
}

/// How a bound method is found again without what keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Its function is in no class of the object under its name, so that `weakref.WeakMethod` may not keep it.
    #[default]
    Loose,
    /// Its function is in a class of the object, but the object finds something else by that name; or what keeps
    /// the method is an attribute that the class has otherwise.
    InClass,
    /// The object finds it by its name.
    ByName,
}

/// How to present one object to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    pub kind: ObjectKind,
    /// Qualified name of the type, with its module unless that is `builtins` or `__main__`.
    pub type_name: String,
    /// The object in a few words, such as `function Model.__init__.<locals>.<lambda>`.
    pub label: String,
    /// Where its code is: of a function, frame, generator; for an instance or a class, the class.
    pub place: Option<Place>,
    /// Of an instance or a class that has no place: the class, after the last part of its module's
    /// name, or for `__main__` the script's, so that it is equal in a file that is run and imported.
    pub unplaced_class: Option<String>,
    /// True for an instance whose class is in a file of the program's, also where it has no place: a data class has no
    /// function that is written in that file.
    pub of_program: bool,
    /// True for an instance of a class without a place that a library's module has written in Python.
    pub of_library: bool,
    pub weak_references: WeakReferences,
    /// True for an instance of a frozen data class, whose attributes cannot be assigned.
    pub frozen: bool,
    /// True for an instance of a class of the program's with a `__setattr__` that may not store what is assigned.
    pub own_setattr: bool,
    /// True for an instance of a class with a method `forward`.
    pub has_forward: bool,
    /// Of a bound method.
    pub standing: Standing,
    /// True for a function that has the name of another, which it wraps (`functools.wraps`).
    pub wraps: bool,
    /// Of a function: the names of its closure variables, in the order of `__closure__`.
    pub free_variables: Vec<String>,
    /// Of a function: the names of the parameters that `__defaults__` is for, in its order.
    pub default_arguments: Vec<String>,
    /// Further facts, as name and value; they differ between occurrences of one leak.
    pub details: Vec<(String, String)>,
}

impl Description {
    /// An object of which no more is known.
    pub(crate) fn blank(kind: ObjectKind, label: String) -> Self {
        Self {
            kind,
            type_name: String::new(),
            label,
            place: None,
            unplaced_class: None,
            of_program: false,
            of_library: false,
            weak_references: WeakReferences::Never,
            frozen: false,
            own_setattr: false,
            has_forward: false,
            standing: Standing::default(),
            wraps: false,
            free_variables: Vec::new(),
            default_arguments: Vec::new(),
            details: Vec::new(),
        }
    }
}

/// The name of a reference from one object to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReferenceName {
    /// An attribute, also one of the interpreter's own such as `__closure__`.
    Attribute(String),
    /// The value at a dict key; the key as Python source, shortened.
    Key(String),
    /// A dict's reference to one of its keys.
    KeyItself,
    /// The item of a sequence.
    Index(usize),
    /// A member of a set.
    Member,
    /// A variable that an inner function took from the function around it.
    Closure(String),
    /// The default value of a parameter.
    Default(String),
    /// A local variable of a frame, a generator or a coroutine.
    Local(String),
    /// The value of a context variable (`contextvars`) in a context.
    ContextVariable(String),
    /// What a `functools.lru_cache` keeps of a call.
    Cached,
    /// The function that a frame runs.
    Function,
    /// What a frame has on its stack: an iterator, the end of a `with` block, a part of an expression.
    Stack,
    /// The type of an object.
    Type,
    /// A reference that exists but has no name in Python.
    Unnamed,
    /// Stands for the references of a stretch of objects that is left out.
    Omitted,
}

impl fmt::Display for ReferenceName {
    /// The reference as a person writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute(name) => write!(f, ".{name}"),
            Self::Key(key) => write!(f, "[{key}]"),
            Self::KeyItself => f.write_str("a key"),
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Member => f.write_str("an element"),
            Self::Closure(name) => write!(f, "closure variable '{name}'"),
            Self::Default(name) => write!(f, "default argument '{name}'"),
            Self::Local(name) => write!(f, "local '{name}'"),
            Self::ContextVariable(name) => write!(f, "context variable '{name}'"),
            Self::Cached => f.write_str("a cached call"),
            Self::Function => f.write_str("its function"),
            Self::Stack => f.write_str("a running `for`, `with` or expression"),
            Self::Type => f.write_str(".__class__"),
            Self::Unnamed => f.write_str("an internal reference"),
            Self::Omitted => f.write_str("…"),
        }
    }
}
