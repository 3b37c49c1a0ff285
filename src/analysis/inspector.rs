//! The embeddable facade: looks at objects of a Python program and says which cycles among them hold
//! device memory.

use std::cell::{Cell, RefCell};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use super::found::{Behind, Detail, Found};
use super::leaks::Met;
use super::process::{cells, framework_versions, importing, process, process_group, program, rank};
use super::room::{FEW, ROOM_FOR_OBJECT, ask_for_room};
use crate::capture::{Classes, class_name, globals_used, remember_script};
use crate::collector::{Epoch, Epochs};
use crate::cpython::{
    Builtins, CurrentFrames, GcModule, HeadLayout, Layouts, TypeTable, WeakReferences, module_count,
};
use crate::device::{DeviceSelection, Frameworks, Reading, gpu_names};
use crate::diagnose::Diagnoses;
use crate::diagnose::library::say_whose;
use crate::diagnose::source::{Program, doubt_libraries, show_source};
use crate::graph::hide_unless_code;
use crate::memory::Marks;
use crate::memory::array::in_turn;
use crate::model::cells::{Cells, name_cells};
use crate::model::occurrences;
use crate::model::rank::Rank;
use crate::model::redact::{redact, redact_process};
use crate::model::report::{Collection, Leak, Occurrence as SeenAt, Origin, Process, RUN, Report};

/// Where the program waits without having asked, at most so many groups of cycles are described, at up to a
/// millisecond each.
pub(crate) const DESCRIBED: usize = 64;

/// What a look outside of a collection showed.
#[derive(Default)]
pub(crate) struct Look {
    pub found: Vec<Found>,
    /// How many unreachable objects there are.
    pub objects: usize,
    /// The addresses of all of them, if a collection of them calls callbacks of weak references, which may let go of
    /// more; else none.
    pub called_back: Vec<usize>,
}

impl Look {
    /// True if a collection would show nothing.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty() && self.called_back.is_empty()
    }
}

/// What only code of libraries tells of the process.
pub(crate) struct Asked {
    rank: Option<Rank>,
    pub cells: Cells,
    pub program: Program,
}

/// Reads the objects of the interpreter that it was made in.
///
/// ```
/// use cyclescope::{DeviceSelection, Inspector};
/// use pyo3::prelude::*;
///
/// Python::attach(|py| -> PyResult<()> {
///     let inspector = Inspector::new(py)?;
///     let report = inspector.find(py, &DeviceSelection::Any)?;
///     println!("{}", cyclescope::render::text::trace(&report));
///     Ok(())
/// })
/// # .unwrap();
/// ```
pub struct Inspector {
    pub(super) builtins: Builtins,
    pub(super) layouts: Layouts,
    pub(super) heads: HeadLayout,
    pub(super) table: RefCell<TypeTable>,
    /// Empty, with memory for the next look.
    pub(super) marks: Cell<Option<Marks>>,
    pub(super) frameworks: RefCell<Frameworks>,
    pub(super) classes: Cell<Classes>,
    pub(super) diagnoses: Cell<Diagnoses>,
    pub(super) met: RefCell<Met>,
    pub(super) gc: GcModule,
    /// `None` if it cannot be asked which there are.
    pub(super) weak_references: Option<WeakReferences>,
    pub(super) current_frames: CurrentFrames,
    pub(super) process: Process,
    /// How many modules there were, and which of them are frameworks, of which version.
    pub(super) versions: Cell<(usize, Vec<(String, String)>)>,
    pub(super) redact: Cell<bool>,
    /// Tensors of which a look made the Python object, by its address, each with that of its memory. PyTorch keeps
    /// such an object for as long as C++ holds the tensor.
    pub(super) made: RefCell<FxHashMap<usize, u64>>,
}

impl Inspector {
    /// # Errors
    /// If the interpreter is not a CPython that cyclescope knows.
    pub fn new(py: Python<'_>) -> PyResult<Self> {
        let builtins = Builtins::new(py)?;
        remember_script(py);
        Ok(Self {
            layouts: Layouts::known(py, &builtins)?,
            frameworks: RefCell::new(Frameworks::new(py, &builtins.instances)?),
            builtins,
            heads: HeadLayout::new(py),
            table: RefCell::new(TypeTable::new()),
            marks: Cell::default(),
            classes: Cell::default(),
            diagnoses: Cell::default(),
            met: RefCell::default(),
            gc: GcModule::new(py)?,
            weak_references: WeakReferences::new(py),
            current_frames: CurrentFrames::new(py)?,
            process: process(py),
            versions: Cell::default(),
            redact: Cell::new(false),
            made: RefCell::default(),
        })
    }

    /// Reports the cycles that are garbage now and hold memory on `devices`.
    ///
    /// Collects nothing, runs no finalizer and changes nothing: the garbage is found as the
    /// collector would find it, in all generations.
    ///
    /// # Errors
    /// If the inspector is at work already (on another thread), or memory runs out.
    pub fn find(&self, py: Python<'_>, devices: &DeviceSelection) -> PyResult<Report> {
        self.find_up_to(py, devices, None)
    }

    /// As [`Inspector::find`], but only what a collection of generations up to `oldest` would find;
    /// of all generations if `None`.
    ///
    /// # Errors
    /// As [`Inspector::find`].
    pub fn find_up_to(
        &self,
        py: Python<'_>,
        devices: &DeviceSelection,
        oldest: Option<u32>,
    ) -> PyResult<Report> {
        let started = Instant::now();
        let mut look = self.look(py, devices, oldest, usize::MAX, Behind::Ignored)?;
        self.drop_in_use(py, &mut look.found)?;
        let collection = Collection {
            trigger: "look".to_owned(),
            generation: oldest,
            garbage_objects: look.objects as u64,
            pause_us: 0,
            importing: None,
            devices: Vec::new(),
        };
        let mut report = self.report(py, look.found, collection, started);
        Self::finish(&mut report, self.redacts(), &Self::ask(py), |_| true);
        Ok(report)
    }

    /// Leaves the program's values, and folders, out of all reports from now on: see
    /// [`crate::model::redact`].
    pub fn redact(&self) {
        self.redact.set(true);
    }

    /// True once [`Inspector::redact`] was called.
    pub fn redacts(&self) -> bool {
        self.redact.get()
    }

    /// The rank of this process in a distributed job; `None` outside of one.
    ///
    /// Runs code of `torch.distributed`, so never within a collection.
    pub fn rank(py: Python<'_>) -> Option<Rank> {
        rank(py)
    }

    /// What [`Inspector::finish`] needs. Runs code of `torch.distributed` and of IPython, so never within a collection.
    pub(crate) fn ask(py: Python<'_>) -> Asked {
        let cells = cells(py);
        Asked {
            rank: rank(py),
            program: program(py, &cells),
            cells,
        }
    }

    /// True if the program has initialised the process group of `torch.distributed`.
    pub(crate) fn is_distributed(py: Python<'_>) -> bool {
        process_group(py).is_some()
    }

    /// Completes a report outside of the collection: the rank of the process, and the library that each leak
    /// belongs to, the program's own lines. Redacts it if asked to; then no source is read.
    /// Leaks that are not to be kept are removed, once it is known whose they may be.
    pub(crate) fn finish(
        report: &mut Report,
        redacted: bool,
        asked: &Asked,
        keep: impl Fn(&Leak) -> bool,
    ) {
        report.set_place(asked.rank);
        if !redacted {
            doubt_libraries(report, &asked.program);
        }
        report.leaks.retain(keep);
        say_whose(report);
        report.sort_leaks();
        if !redacted {
            show_source(report, &asked.program);
        }
        name_cells(report, &asked.cells);
        if redacted {
            redact(report);
        }
        for leak in &mut report.leaks {
            leak.origin = Origin::default();
        }
    }

    /// What is garbage now in generations up to `oldest` (all if `None`). If that is more than `most` objects, there is
    /// no search for leaks.
    pub(crate) fn look(
        &self,
        py: Python<'_>,
        devices: &DeviceSelection,
        oldest: Option<u32>,
        most: usize,
        behind: Behind,
    ) -> PyResult<Look> {
        self.refresh(py);
        if !self.frameworks_known() {
            return Ok(Look::default());
        }
        // Nobody knows which classes died since the last look.
        self.forget_classes();
        let garbage = self.unreachable_up_to(py, oldest)?;
        let objects = garbage.objects.len();
        if objects > most {
            return Ok(Look {
                objects,
                ..Look::default()
            });
        }
        let described = if most == usize::MAX {
            usize::MAX
        } else {
            DESCRIBED
        };
        let own = garbage.own_references();
        self.looked_at(py, &garbage.objects, own, devices, described, behind)
    }

    /// As `look`, but only at the objects made since an epoch began, as far as these alone show what is garbage. Also
    /// says whether an unreachable one is of the oldest generation. `None` if only a look at the whole heap tells.
    pub(crate) fn look_at_new(
        &self,
        py: Python<'_>,
        devices: &DeviceSelection,
        epochs: &Epochs,
        since: Epoch,
        behind: Behind,
    ) -> PyResult<Option<(Look, bool)>> {
        self.refresh(py);
        self.forget_classes();
        let Some(new) = epochs.new_since(py, &self.gc, since) else {
            return Ok(None);
        };
        if !self.frameworks_known() {
            return Ok(Some((Look::default(), false)));
        }
        ask_for_room(new.objects.len(), ROOM_FOR_OBJECT)?;
        // SAFETY: nothing that runs here destroys an object, and each is in one list, once.
        let garbage = unsafe { self.unreachable_among(&new.objects, 0)? };
        let look = self.looked_at(py, &garbage, 0, devices, usize::MAX, behind)?;
        // Unreachable objects are in the order of all.
        let mut young = new.objects[..new.young].iter();
        let is_young = |object| young.any(|other| other == object);
        let is_any_old = !look.is_empty() && !garbage.iter().all(is_young);
        Ok(Some((look, is_any_old)))
    }

    /// A look at unreachable objects, to each of which the caller has so many references.
    fn looked_at(
        &self,
        py: Python<'_>,
        garbage: &[*mut ffi::PyObject],
        own_references: i64,
        devices: &DeviceSelection,
        described: usize,
        behind: Behind,
    ) -> PyResult<Look> {
        let called_back = match self.is_called_back(py, garbage) {
            true => garbage.iter().map(|&object| object as usize).collect(),
            false => Vec::new(),
        };
        Ok(Look {
            found: self.leaks_in(py, garbage, own_references, devices, described, behind)?,
            objects: garbage.len(),
            called_back,
        })
    }

    /// The leaks among unreachable objects, to each of which the caller has so many references. At most `described` groups of cycles are described.
    pub(super) fn leaks_in(
        &self,
        py: Python<'_>,
        garbage: &[*mut ffi::PyObject],
        own_references: i64,
        devices: &DeviceSelection,
        described: usize,
        behind: Behind,
    ) -> PyResult<Vec<Found>> {
        // Frameworks are asked about objects, and may let other threads run, which may collect.
        let _held: Vec<Bound<'_, PyAny>> = garbage
            .iter()
            .map(|&object| self.object(py, object as usize))
            .collect();
        if !self
            .triage(py, in_turn(garbage), Reading::Inside, devices)?
            .holds_buffer
        {
            return Ok(Vec::new());
        }
        let (found, _) = self.examine(
            py,
            garbage,
            own_references + 1,
            devices,
            Detail::of(described),
            behind,
        )?;
        Ok(found)
    }

    /// The collector that the objects belong to.
    pub(crate) fn gc(&self) -> &GcModule {
        &self.gc
    }

    /// Forgets what was remembered of classes: one may have died.
    pub(crate) fn forget_classes(&self) {
        let mut classes = self.classes.take();
        classes.forget();
        self.classes.set(classes);
        self.forget_met();
    }

    fn forget_met(&self) {
        if let Ok(mut met) = self.met.try_borrow_mut() {
            met.forget();
        }
    }

    /// Whether there is memory for an examination of so many objects.
    ///
    /// # Errors
    /// `MemoryError` if there is not.
    pub(crate) fn ask_for_room(&self, objects: usize) -> PyResult<()> {
        if objects <= FEW {
            return Ok(());
        }
        ask_for_room(objects, ROOM_FOR_OBJECT)
    }

    /// Whether there is memory to tell of what was found.
    ///
    /// # Errors
    /// `MemoryError` if there is not.
    pub(crate) fn ask_for_report(&self) -> PyResult<()> {
        ask_for_room(0, ROOM_FOR_OBJECT)
    }

    /// Takes note of frameworks that the program has imported since the last look.
    pub(crate) fn refresh(&self, py: Python<'_>) {
        if let Ok(mut frameworks) = self.frameworks.try_borrow_mut()
            && frameworks.refresh(py)
            && let Ok(mut table) = self.table.try_borrow_mut()
        {
            table.clear();
            self.forget_met();
        }
    }

    /// True if any framework that holds device memory has been imported.
    pub(crate) fn frameworks_known(&self) -> bool {
        self.frameworks
            .try_borrow()
            .is_ok_and(|frameworks| frameworks.any())
    }

    /// A name of the program's as reports may have it.
    pub(super) fn shown(&self, mut name: String) -> String {
        if self.redacts() {
            hide_unless_code(&mut name);
        }
        name
    }

    pub(super) fn globals_used<'py>(&self, function: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        globals_used(&self.builtins, function)
    }

    pub(super) fn object<'py>(&self, py: Python<'py>, address: usize) -> Bound<'py, PyAny> {
        // SAFETY: attached; called with addresses of a snapshot whose garbage is still held.
        unsafe { Bound::from_borrowed_ptr(py, address as *mut ffi::PyObject) }
    }

    pub(super) fn type_name(&self, object: &Bound<'_, PyAny>) -> String {
        self.class_name(object.get_type().as_any())
    }

    pub(super) fn class_name(&self, class: &Bound<'_, PyAny>) -> String {
        let mut name = class_name(&self.builtins, class);
        if self.redacts() {
            hide_unless_code(&mut name);
        }
        name
    }

    /// A report of what was found. Whose each leak is, is left for when the program does not wait:
    /// [`say_whose`].
    pub(crate) fn report(
        &self,
        py: Python<'_>,
        found: Vec<Found>,
        mut collection: Collection,
        started: Instant,
    ) -> Report {
        let is_dated = |leak: &&Found| leak.occurrences.iter().any(|one| one.epoch.is_some());
        let epochs = found.iter().filter(is_dated);
        let epochs = epochs.map(|leak| (leak.signature().to_owned(), leak.epochs()));
        let epochs = epochs.collect();
        let leaks = found.into_iter().map(Found::into_leak).collect();
        collection.importing = importing(py, &self.builtins);
        collection.pause_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut report = Report::new(self.process_now(py), now(), collection);
        report.leaks = leaks;
        report.epochs = epochs;
        report.sort_leaks();
        let looked = report.collection.trigger == "look";
        for leak in &mut report.leaks {
            leak.occurrences = vec![SeenAt {
                collections: u64::from(!looked),
                looked,
                ..self.seen_at(report.time, leak.count, leak.bytes_held)
            }];
        }
        report
    }

    /// A report of this process without findings, made without an inspection.
    pub(crate) fn empty_report(&self, py: Python<'_>) -> Report {
        self.report_without_leaks(py, "look")
    }

    /// As [`Self::empty_report`], of the whole run of a program that was watched.
    pub(crate) fn report_of_run(&self, py: Python<'_>) -> Report {
        self.report_without_leaks(py, RUN)
    }

    fn report_without_leaks(&self, py: Python<'_>, trigger: &str) -> Report {
        let collection = Collection {
            trigger: trigger.to_owned(),
            ..Collection::default()
        };
        let mut report = Report::new(self.process_now(py), now(), collection);
        // Without leaks there are no cells to name and no lines to show, and each check of a test that leaks nothing is
        // answered with this: to list the files of the program would take longer than the check.
        report.set_place(rank(py));
        if self.redacts() {
            redact(&mut report);
        }
        report
    }

    /// That a leak was seen just now.
    pub(crate) fn occurrence_of(&self, leak: &Found) -> SeenAt {
        self.seen_at(now(), leak.count(), leak.bytes_held())
    }

    fn seen_at(&self, time: f64, count: u64, bytes: u64) -> SeenAt {
        let mut seen = SeenAt {
            pid: std::process::id(),
            ..occurrences::of(&self.process, time, count, bytes)
        };
        if self.redacts() {
            seen.host.clear();
        }
        seen
    }

    /// This process, as it is now.
    fn process_now(&self, py: Python<'_>) -> Process {
        Process {
            pid: std::process::id(),
            frameworks: self.versions(py),
            gpus: gpu_names(),
            ..self.process.clone()
        }
    }

    /// The versions of the frameworks, looked up again when there are other modules than the last time.
    fn versions(&self, py: Python<'_>) -> Vec<(String, String)> {
        let modules = module_count(py);
        let (known, versions) = self.versions.take();
        let versions = if known == modules {
            versions
        } else {
            framework_versions(py)
        };
        self.versions.set((modules, versions.clone()));
        versions
    }

    /// This process, as a page may name it.
    pub(crate) fn process_to_tell(&self, py: Python<'_>) -> Process {
        let mut process = self.process_now(py);
        let place = rank(py);
        process.rank = place.map(|it| it.rank);
        process.world_size = place.and_then(|it| it.world_size);
        if self.redacts() {
            redact_process(&mut process);
        }
        process
    }
}

/// In seconds since 1970-01-01 UTC.
pub(super) fn now() -> f64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    time.map_or(0.0, |time| time.as_secs_f64())
}
