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
