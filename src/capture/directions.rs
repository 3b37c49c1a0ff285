//! Where an attribute by which one object refers to another leads: back to what made it, or forth to what it made.

use pyo3::prelude::*;

use super::evidence::{Strength, Wanted};
use super::makers::{INNER, Makers};
use super::places::qualname;
use crate::cpython::types::is_heap_class;

impl<'py> Makers<'_, 'py> {
    /// True if an attribute of objects of the class `owner`, which leads to one of `target`, leads back to what made
    /// them: a method of `target` passes its own object to what stores it so, or stores it so itself.
    pub fn leads_back(
        &self,
        owner: &Bound<'py, PyAny>,
        target: &Bound<'py, PyAny>,
        attribute: &str,
    ) -> bool {
        let (owners, targets) = (self.addresses(owner), self.addresses(target));
        let wanted = Wanted {
            attribute,
            may_be_empty: false,
            in_container: false,
            to_itself: false,
            leads_back: true,
            method: None,
            locals: None,
            target: None,
        };
        let name = qualname(&self.builtins.type_qualname, owner);
        let mut takers = Vec::new();
        for function in &self.functions {
            let stores = owners.contains(&function.class)
                && self.evidence(function).of(&wanted, true) == Some(Strength::Given);
            if stores {
                takers.push(&*function.called);
                takers.extend(name.rsplit('.').next().filter(|_| function.is_constructor));
            }
        }
        let mut givers = self.functions.iter();
        givers.any(|function| {
            targets.contains(&(function.class & !INNER)) && {
                let evidence = self.evidence(function);
                evidence.stores_own_object_as(attribute)
                    || takers
                        .iter()
                        .any(|taker| evidence.passes_own_object_to(taker))
            }
        })
    }

    /// True if a method of a class stores as an attribute of its object what it makes from this, or an instance of `target`
    /// that it makes: `self.child = Child(self)`. Or a function does so: `owner.child = Child(owner)`.
    pub fn leads_forth(
        &self,
        owner: &Bound<'py, PyAny>,
        target: &Bound<'py, PyAny>,
        attribute: &str,
    ) -> bool {
        let owners = self.addresses(owner);
        let class = qualname(&self.builtins.type_qualname, target);
        let class = class.rsplit('.').next().unwrap_or_default();
        let is_of_c = !is_heap_class(target);
        // `list(items)` is a copy.
        let class = Some(class).filter(|_| !is_of_c);
        self.functions.iter().any(|function| {
            let evidence = self.evidence(function);
            owners.contains(&function.class) && evidence.stores_made(attribute, class)
                || class.is_some_and(|class| evidence.stores_made_from_owner(attribute, class))
        })
    }

    /// True if a function stores `back` of an object after `forth` of another one, to which `back` leads.
    pub fn is_wired(&self, forth: &str, back: &str) -> bool {
        let mut functions = self.functions.iter();
        functions.any(|function| self.evidence(function).wires(forth, back))
    }

    /// True if a function of a class, or of one that it derives from, stores an attribute of its object.
    pub fn stores(&self, class: &Bound<'py, PyAny>, attribute: &str) -> bool {
        let classes = self.addresses(class);
        let wanted = Wanted {
            attribute,
            may_be_empty: true,
            in_container: false,
            to_itself: false,
            leads_back: false,
            method: None,
            locals: None,
            target: None,
        };
        self.functions.iter().any(|function| {
            classes.contains(&(function.class & !INNER))
                && self.evidence(function).of(&wanted, true).is_some()
        })
    }
}
