//! Which code made a reference, read from the functions that may have: those of the classes around it and of
//! the modules whose functions are near.
//!
//! A function that assigns to an attribute of this name tells more than the class of the object that has it.
//! Nothing is proven by that, so what a function was only given is told apart from what it made itself.

use std::cell::RefCell;

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use super::classes::{class_attribute, class_module, file_in};
use super::evidence::{Evidence, Locals, PUTS, Strength, Target, Wanted};
use super::places::{code_place, function_code, function_place, qualname};
use super::{Made, Place, is_library_file};
use crate::cpython::instances;
use crate::cpython::read::{module_named, referents};
use crate::cpython::types::is_heap_class;
use crate::cpython::{Builtins, ObjectKind, class_items, dict_items, find_item, items, text_of};

/// So many functions are read for one leak at most.
const FUNCTION_LIMIT: usize = 4096;
/// Of the modules that these are from, so many are read whole.
const MODULE_LIMIT: usize = 8;
/// Of the functions within a function, so many.
const INNER_LIMIT: usize = 64;
/// A dict of more items is no function's local variables.
const VARIABLE_LIMIT: usize = 256;

/// The functions that may have made the references of a leak.
pub struct Makers<'a, 'py> {
    pub(super) builtins: &'a Builtins,
    pub(super) functions: Vec<Candidate<'py>>,
    packages: RefCell<FxHashMap<String, Option<String>>>,
}

/// A function, and how it is found.
pub(super) struct Candidate<'py> {
    code: Bound<'py, PyAny>,
    place: Option<Place>,
    /// What others call it: its name, or that of its class for a constructor.
    pub(super) called: String,
    pub(super) is_constructor: bool,
    /// Address of the class that has it, 0 for a function of a module.
    pub(super) class: usize,
    /// True if it is of the package of the class of one of the leak's objects.
    is_near: bool,
}

impl<'a, 'py> Makers<'a, 'py> {
    /// `objects` are those of the leak; `callables` are functions, methods and partials near them.
    pub fn new(
        builtins: &'a Builtins,
        objects: &[Bound<'py, PyAny>],
        callables: &[Bound<'py, PyAny>],
    ) -> Self {
        let mut makers = Self {
            builtins,
            functions: Vec::new(),
            packages: RefCell::default(),
        };
        let mut seen: Vec<usize> = Vec::new();
        let mut near: Vec<_> = callables
            .iter()
            .filter_map(|callable| makers.function_of(callable))
            .collect();
        for object in objects {
            for class in makers.bases(object.get_type().as_any()) {
                near.extend(makers.add_class(&class, &mut seen, true));
            }
        }
        let mut modules: Vec<Bound<'py, PyAny>> = Vec::new();
        for function in near {
            let globals = builtins.function_globals.get(&function);
            modules.extend(globals.filter(|it| !modules.iter().any(|known| known.is(it))));
        }
        for module in modules.iter().take(MODULE_LIMIT) {
            makers.add_module(module, &mut seen);
        }
        makers
    }

    fn bases(&self, class: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        let mro = self.builtins.type_mro.get(class);
        mro.as_ref().map_or_else(Vec::new, items)
    }

    fn kind(&self, object: &Bound<'_, PyAny>) -> ObjectKind {
        // SAFETY: attached, the object and its type are alive.
        unsafe { self.builtins.kind(ffi::Py_TYPE(object.as_ptr())) }
    }

    /// Adds the methods of a class; returns the first of them.
    fn add_class(
        &mut self,
        class: &Bound<'py, PyAny>,
        seen: &mut Vec<usize>,
        is_near: bool,
    ) -> Option<Bound<'py, PyAny>> {
        let address = class.as_ptr() as usize;
        if seen.contains(&address) {
            return None;
        }
        seen.push(address);
        let mut methods = Vec::new();
        class_items(self.builtins, class, &mut |name, value| {
            let name = text_of(name).unwrap_or_default();
            match self.kind(value) {
                // From 3.14 on: it makes a dict of annotations, whose keys are the names of attributes.
                ObjectKind::Function if name.starts_with("__annotate") => {}
                ObjectKind::Function => methods.push((name, value.clone())),
                ObjectKind::Descriptor => {
                    for function in self.functions_in(value) {
                        methods.push((name.clone(), function));
                    }
                }
                _ => {}
            }
            true
        });
        let package = class_module(self.builtins, class).map(|module| first_part(&module));
        let package = package.filter(|_| is_near);
        let class_name = qualname(&self.builtins.type_qualname, class);
        let class_name = class_name.rsplit('.').next().unwrap_or_default();
        let first = methods.first().map(|(_, function)| function.clone());
        for (name, function) in methods {
            let is_constructor = ["__init__", "__new__", "__post_init__"].contains(&&*name);
            let called = match is_constructor {
                true => class_name,
                false => &name,
            };
            let of_class = (address, is_constructor);
            // What a decorator wraps is in its closure.
            for wrapped in self.wrapped_in(&function) {
                self.add_function(&wrapped, called, of_class, package.as_deref());
            }
            self.add_function(&function, called, of_class, package.as_deref());
        }
        first
    }

    fn add_module(&mut self, globals: &Bound<'py, PyAny>, seen: &mut Vec<usize>) {
        let address = globals.as_ptr() as usize;
        if seen.contains(&address) {
            return;
        }
        seen.push(address);
        let name = name_of_module(globals);
        let mut found = Vec::new();
        dict_items(globals, &mut |_, value| {
            if matches!(self.kind(value), ObjectKind::Function | ObjectKind::Class) {
                found.push(value.clone());
            }
            found.len() < FUNCTION_LIMIT
        });
        for value in found {
            if self.kind(&value) == ObjectKind::Class {
                if name.is_some() && class_module(self.builtins, &value) == name {
                    self.add_class(&value, seen, false);
                }
                continue;
            }
            let own = self.builtins.function_globals.get(&value);
            if own.is_some_and(|own| own.is(globals)) {
                let called = qualname(&self.builtins.function_qualname, &value);
                self.add_function(&value, &called, (0, false), None);
            }
        }
    }

    /// Adds a function and those within it. It is near if it is of that package. `class` is the address of its class, and
    /// whether it is a constructor of that.
    fn add_function(
        &mut self,
        function: &Bound<'py, PyAny>,
        called: &str,
        (class, is_constructor): (usize, bool),
        package: Option<&str>,
    ) {
        let Some(code) = function_code(self.builtins, function) else {
            return;
        };
        let place = self.origin_of_function(function);
        let globals = self.builtins.function_globals.get(function);
        let own = globals.and_then(|globals| Some(first_part(&name_of_module(&globals)?)));
        let is_near = package.is_some() && own.as_deref() == package;
        for (depth, code) in self.with_inner(code) {
            if self.functions.len() >= FUNCTION_LIMIT {
                return;
            }
            self.functions.push(Candidate {
                code,
                place: place.clone(),
                called: called.to_owned(),
                is_constructor,
                // The first parameter of a function within a method is not its object.
                class: if depth == 0 { class } else { class | INNER },
                is_near,
            });
        }
    }

    /// A function's code and that of the functions within it, each with how deep it lies.
    fn with_inner(&self, code: Bound<'py, PyAny>) -> Vec<(usize, Bound<'py, PyAny>)> {
        let mut all = vec![(0, code)];
        let mut next = 0;
        while let Some((depth, code)) = all.get(next).cloned() {
            next += 1;
            let constants = self.builtins.code_consts.get(&code);
            for constant in constants.iter().flat_map(items) {
                if all.len() < INNER_LIMIT && self.kind(&constant) == ObjectKind::Code {
                    all.push((depth + 1, constant));
                }
            }
        }
        all
    }

    /// The functions that an object refers to.
    fn functions_in(&self, object: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        let all = referents(object).into_iter();
        // SAFETY: attached; the object refers to the target and so keeps it alive.
        let all = all.map(|target| unsafe {
            Bound::from_borrowed_ptr(object.py(), target as *mut ffi::PyObject)
        });
        all.filter(|target| self.kind(target) == ObjectKind::Function)
            .collect()
    }

    /// The functions in the closure of a function.
    fn wrapped_in(&self, function: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        let cells = self.builtins.function_closure.get(function);
        let cells = cells.as_ref().map_or_else(Vec::new, items);
        cells
            .iter()
            .flat_map(|cell| self.functions_in(cell))
            .collect()
    }

    /// The function behind a function, a bound method or a partial.
    pub fn function_of(&self, callable: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        let mut callable = callable.clone();
        for _ in 0..3 {
            callable = match self.kind(&callable) {
                ObjectKind::Function => return Some(callable),
                ObjectKind::Method => self.builtins.method_function.get(&callable)?,
                ObjectKind::Partial => self.builtins.partial_function.get(&callable)?,
                _ => return None,
            };
        }
        None
    }

    /// Whose code a function, a bound method or a partial is of: its own place or, if it was generated, that of
    /// the package that its module is of. `None` if that is not known.
    pub fn origin(&self, callable: &Bound<'py, PyAny>) -> Option<Place> {
        self.origin_of_function(&self.function_of(callable)?)
    }

    fn origin_of_function(&self, function: &Bound<'py, PyAny>) -> Option<Place> {
        let place = function_place(self.builtins, function)?;
        self.origin_of_code(place, self.builtins.function_globals.get(function))
    }

    /// As [`Makers::origin`], of the frame's function.
    pub fn origin_of_frame(&self, frame: &Bound<'py, PyAny>) -> Option<Place> {
        let code = crate::cpython::frames::code_of_frame(self.builtins, frame)?;
        let place = code_place(self.builtins, &code)?;
        self.origin_of_code(place, self.builtins.frame_globals.get(frame))
    }

    fn origin_of_code(&self, place: Place, globals: Option<Bound<'py, PyAny>>) -> Option<Place> {
        if is_library_file(&place.file) {
            return Some(place);
        }
        let globals = globals?;
        let name =
            name_of_module(&globals).filter(|name| !matches!(name.as_str(), "" | "builtins"))?;
        // A library may be the main program, and run code of the user's under that name, as Ray's workers do.
        if matches!(name.as_str(), "__main__" | "__mp_main__") {
            return Some(place);
        }
        match self.file_of_package(globals.py(), &first_part(&name)) {
            Some(file) if is_library_file(&file) => Some(Place { file, line: 0 }),
            _ => Some(place),
        }
    }

    /// The file of an imported package.
    fn file_of_package(&self, py: Python<'py>, package: &str) -> Option<String> {
        let mut packages = self.packages.borrow_mut();
        let file = packages.entry(package.to_owned()).or_insert_with(|| {
            let names = self.builtins.module_dict.get(&module_named(py, package)?)?;
            file_in(&names)
        });
        file.clone()
    }
}

impl<'py> Makers<'_, 'py> {
    /// Who made a reference of an object of this class; `None` if the reference is of no such object.
    ///
    /// The classes of the cycle's objects before other code, and the program's own before a library's: what both
    /// may have made is no library's. What a library's function was only given is the library's making if one of
    /// its functions gave it.
    pub fn made(&self, class: Option<&Bound<'py, PyAny>>, wanted: &Wanted<'_>) -> Made {
        let bases = class.map_or_else(Vec::new, |class| self.bases(class));
        let bases: Vec<usize> = bases.iter().map(|base| base.as_ptr() as usize).collect();
        let found = self.functions.iter().filter_map(|function| {
            let evidence = self.evidence(function);
            let is_own = bases.contains(&(function.class & !INNER));
            Some((
                evidence.of(wanted, is_own)?,
                is_own || function.is_near,
                function,
            ))
        });
        let found: Vec<(Strength, bool, &Candidate<'py>)> = found.collect();
        let is_near = found.iter().any(|&(_, is_near, _)| is_near);
        let found = found.into_iter().filter(|found| found.1 == is_near);
        let found: Vec<_> = found
            .map(|(strength, _, function)| (strength, function))
            .collect();
        let place = |function: &Candidate<'py>| function.place.clone();
        if let Some((_, function)) = found.iter().find(|(_, function)| function.is_programs()) {
            return place(function).map_or(Made::Unknown, Made::By);
        }
        if wanted.in_container
            && let Some(made) = self.put_by_program(&found, wanted)
        {
            return made;
        }
        let best = found.iter().rev().max_by_key(|(strength, _)| *strength);
        let takers: Vec<&str> = found.iter().map(|(_, taker)| &*taker.called).collect();
        if matches!(best, Some((Strength::Given | Strength::Taken, _)))
            && let Some(locals) = &wanted.locals
            && let Some(made) = self.given_as_locals(&takers, locals)
        {
            return made;
        }
        match best {
            None => match self.cached(class, wanted.attribute) {
                Some(getter) => Made::By(getter),
                None => self
                    .declared(class, wanted.attribute)
                    .map_or(Made::Unknown, Made::Given),
            },
            Some((Strength::Made, function))
                if wanted.in_container && !self.is_target_made(&found, wanted) =>
            {
                place(function).map_or(Made::Unknown, Made::Given)
            }
            Some((Strength::Made, function)) => place(function).map_or(Made::Unknown, Made::By),
            Some((Strength::Taken, function)) => place(function).map_or(Made::Unknown, Made::Given),
            Some((Strength::Given, function)) => {
                let takers = found
                    .iter()
                    .filter(|(strength, _)| *strength == Strength::Given);
                let takers: Vec<&str> = takers.map(|(_, taker)| &*taker.called).collect();
                self.given_by(&takers, wanted)
                    .unwrap_or_else(|| place(function).map_or(Made::Unknown, Made::Given))
            }
        }
    }

    /// True if a library is seen to make what is in its container, where it puts that or passes it on to be put.
    fn is_target_made(&self, found: &[(Strength, &Candidate<'py>)], wanted: &Wanted<'_>) -> bool {
        let Some(target) = &wanted.target else {
            return true;
        };
        let makes = |&(strength, function): &(Strength, &Candidate<'py>)| {
            let makes_it = || wanted.to_itself || self.evidence(function).calls(&target.class);
            strength == Strength::Made && makes_it()
        };
        let takers: Vec<&str> = found.iter().map(|(_, taker)| &*taker.called).collect();
        found.iter().any(makes) || self.given_by(&takers, wanted).is_some()
    }

    /// True if a library's function calls the class of an object.
    pub fn are_made_by_library(&self, object: &Bound<'py, PyAny>) -> bool {
        let class = self.target(object, false).class;
        let mut functions = self.functions.iter();
        functions.any(|function| !function.is_programs() && self.evidence(function).calls(&class))
    }

    /// The program's function that may have put something into a library's container by a method of the library, such as
    /// `UserList.append`.
    fn put_by_program(
        &self,
        found: &[(Strength, &Candidate<'py>)],
        wanted: &Wanted<'_>,
    ) -> Option<Made> {
        let takes = |&&(strength, taker): &&(Strength, &Candidate<'py>)| {
            strength == Strength::Given && !taker.is_constructor
        };
        let takers = found.iter().filter(takes);
        let takers: Vec<&str> = takers.map(|(_, taker)| &*taker.called).collect();
        let made = self.given_by(&takers, wanted)?;
        matches!(&made, Made::By(place) if !is_library_file(&place.file)).then_some(made)
    }

    /// The addresses of a class and its bases.
    pub(super) fn addresses(&self, class: &Bound<'py, PyAny>) -> Vec<usize> {
        let bases = self.bases(class).into_iter();
        bases.map(|base| base.as_ptr() as usize).collect()
    }

    /// The method whose result an object keeps under its name, as `functools.cached_property` has it.
    fn cached(&self, class: Option<&Bound<'py, PyAny>>, attribute: &str) -> Option<Place> {
        let property = class_attribute(self.builtins, class?, attribute)?;
        let kind = qualname(&self.builtins.type_qualname, property.get_type().as_any());
        let getter = (kind == "cached_property")
            .then(|| instances::attribute(&self.builtins.instances, &property, "func"))?;
        function_place(self.builtins, &getter?)
    }

    /// The package of the class implemented in C that has an attribute.
    fn declared(&self, class: Option<&Bound<'py, PyAny>>, attribute: &str) -> Option<Place> {
        let bases = class.map_or_else(Vec::new, |class| self.bases(class));
        let base = bases.iter().find(|base| {
            let is_of_c = !is_heap_class(base);
            is_of_c && find_item(attribute, |f| class_items(self.builtins, base, f)).is_some()
        })?;
        let package = first_part(&class_module(self.builtins, base)?);
        let file = self.file_of_package(base.py(), &package)?;
        is_library_file(&file).then_some(Place { file, line: 0 })
    }

    /// Whose function calls one of these with something of its own, if there is such a function.
    ///
    /// That a library calls `append` somewhere, as `MutableSequence.extend` does, says nothing of who has called this one.
    /// Nor does a call with what it makes itself, unless nobody else would call that.
    fn given_by(&self, takers: &[&str], wanted: &Wanted<'_>) -> Option<Made> {
        let gives = |function: &&Candidate<'py>| {
            if !function.is_near {
                return false;
            }
            let evidence = self.evidence(function);
            let tells = |taker: &&&str| function.is_programs() || !PUTS.contains(taker);
            let mut takers = takers.iter().filter(tells);
            let may_be_it = |taker: &str| {
                let target = wanted.target.as_ref();
                target.is_none_or(|target| {
                    function.is_programs()
                        || taker.starts_with('_') && evidence.calls(&target.class)
                        || !target.is_deep
                            && function.is_of(target)
                            && evidence.passes_own_object_to(taker)
                })
            };
            takers.any(|taker| evidence.gives(taker, wanted.method) && may_be_it(taker))
        };
        let mut givers: Vec<_> = self.functions.iter().filter(gives).collect();
        givers.sort_by_key(|giver| !giver.is_programs());
        givers.first()?.place.clone().map(Made::By)
    }

    /// Whose method passes its local variables to one of these, if they can be what was given.
    fn given_as_locals(&self, takers: &[&str], locals: &Locals) -> Option<Made> {
        let gives = |function: &&Candidate<'py>| {
            let evidence = self.evidence(function);
            locals.classes.contains(&function.class)
                && takers
                    .iter()
                    .any(|taker| evidence.gives_locals(taker, locals))
        };
        let mut givers: Vec<_> = self.functions.iter().filter(gives).collect();
        givers.sort_by_key(|giver| !giver.is_programs());
        givers.first()?.place.clone().map(Made::By)
    }

    /// An instance as what a reference leads to.
    pub fn target(&self, object: &Bound<'py, PyAny>, is_deep: bool) -> Target {
        let class = object.get_type().into_any();
        let name = qualname(&self.builtins.type_qualname, &class);
        Target {
            class: name.rsplit('.').next().unwrap_or_default().to_owned(),
            classes: self.addresses(&class),
            is_deep,
        }
    }

    /// What a dict may be that keeps something by a name.
    pub fn locals(&self, dict: &Bound<'py, PyAny>, name: &str) -> Option<Locals> {
        let (names, receiver) = method_locals(dict)?;
        let classes = self.bases(receiver.get_type().as_any());
        Some(Locals {
            names,
            name: name.to_owned(),
            classes: classes.iter().map(|base| base.as_ptr() as usize).collect(),
        })
    }

    pub(super) fn evidence<'c>(&self, function: &'c Candidate<'py>) -> Evidence<'_, 'c, 'py> {
        let is_method = function.class != 0 && function.class & INNER == 0;
        Evidence::new(self.builtins, &function.code, is_method)
    }
}

impl Candidate<'_> {
    /// True for a method, or a function within one, of the target's class.
    fn is_of(&self, target: &Target) -> bool {
        target.classes.contains(&(self.class & !INNER))
    }

    fn is_programs(&self) -> bool {
        let place = self.place.as_ref();
        place.is_some_and(|place| !is_library_file(&place.file))
    }
}

/// The names in a dict and what it has as `self`, if it may be the local variables of a method.
pub fn method_locals<'py>(dict: &Bound<'py, PyAny>) -> Option<(Vec<String>, Bound<'py, PyAny>)> {
    let mut names = Vec::new();
    let mut receiver = None;
    let mut count = 0;
    dict_items(dict, &mut |key, value| {
        let name = text_of(key);
        if name.as_deref() == Some("self") {
            receiver = Some(value.clone());
        }
        names.extend(name);
        count += 1;
        count <= VARIABLE_LIMIT
    });
    Some((names, receiver.filter(|_| count <= VARIABLE_LIMIT)?))
}

fn name_of_module(globals: &Bound<'_, PyAny>) -> Option<String> {
    text_of(&find_item("__name__", |f| dict_items(globals, f))?)
}

/// The package of a module.
fn first_part(module: &str) -> String {
    module.split('.').next().unwrap_or_default().to_owned()
}

/// Marks a function within a method, beside its class's address, which is even.
pub(super) const INNER: usize = 1;
