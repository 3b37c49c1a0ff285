//! What kinds of objects there are.

/// The metaclass of enumerations, by its names in different Pythons.
pub const ENUMERATION: [&str; 2] = ["enum.EnumType", "enum.EnumMeta"];

/// What an object is, as far as naming and analysis care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    Instance,
    Dict,
    List,
    Tuple,
    Set,
    Deque,
    Function,
    BuiltinFunction,
    Method,
    Partial,
    Cell,
    Frame,
    Traceback,
    Exception,
    Generator,
    Coroutine,
    AsyncGenerator,
    Class,
    Module,
    Weakref,
    /// Property, static method, slot descriptor and their kin.
    Descriptor,
    /// Code objects and other things that hold nothing a leak could pass through.
    Code,
}

/// What happens where an object, found in a class, is read or assigned as an attribute of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Nothing: it is a value. Or it stands for a place of the instance itself, as for `__slots__`.
    Value,
    /// It is asked where the instance has no attribute of the name, as functions and `functools.cached_property` are.
    Read,
    /// It is asked first, and at each assignment: a property, or another data descriptor.
    Assigned,
}
