//! The process that a report is about.

use std::collections::{BTreeMap, HashMap};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyModule, PyTuple};

use crate::capture::{file_in, is_library_file};
use crate::cpython::read::{each_module, printable};
use crate::cpython::{
    Builtins, attribute, dict_items, find_item, imported, module_count, new_text, text_of,
};
use crate::diagnose::source::Program;
use crate::model::cells::Cells;
use crate::model::rank::Rank;
use crate::model::report::Process;

/// What does not change while the process lives.
pub(super) fn process(py: Python<'_>) -> Process {
    let sys = py.import("sys").ok();
    let program = sys.as_ref().and_then(|sys| {
        sys.getattr("argv")
            .ok()?
            .get_item(0)
            .ok()?
            .extract::<String>()
            .ok()
    });
    let version = py.version_info();
    Process {
        host: host_name(),
        pid: std::process::id(),
        rank: None,
        world_size: None,
        python: format!("{}.{}.{}", version.major, version.minor, version.patch),
        program: named_program(program.unwrap_or_default()),
        frameworks: Vec::new(),
        gpus: Vec::new(),
    }
}

/// What the program is called: of a Jupyter kernel its notebook, which the server names in the environment.
fn named_program(program: String) -> String {
    match program.rsplit(['/', '\\']).next() {
        Some("ipykernel_launcher.py") => {
            std::env::var("JPY_SESSION_NAME").unwrap_or_else(|_| "notebook".to_owned())
        }
        _ => program,
    }
}

/// The rank of this process: that in the program's process group, or else that which its launcher gave
/// it. `None` if it is of no distributed job.
///
/// Calls functions of `torch.distributed`, so never within a collection. Imports and initialises nothing.
pub(super) fn rank(py: Python<'_>) -> Option<Rank> {
    let launched = Rank::of_environment(|name| std::env::var(name).ok());
    let of_group = || {
        let group = process_group(py)?;
        let number = |name| group.get_item(name).ok()??.call0().ok()?.extract().ok();
        Some(Rank {
            rank: number(intern!(py, "get_rank"))?,
            local_rank: launched.and_then(|rank| rank.local_rank),
            world_size: number(intern!(py, "get_world_size")),
        })
    };
    of_group().or(launched)
}

/// The cells of the notebook or session that IPython runs here.
///
/// `CachingCompiler` in IPython/core/compilerop.py has the number of each cell by the name of its file.
pub(super) fn cells(py: Python<'_>) -> Cells {
    let numbers = || {
        let module = imported(intern!(py, "IPython.core.interactiveshell"))?;
        let class = module.get_item(intern!(py, "InteractiveShell")).ok()??;
        let shell = class.getattr(intern!(py, "_instance")).ok()?;
        let compiler = shell.getattr(intern!(py, "compile")).ok()?;
        let numbers = compiler.getattr(intern!(py, "_filename_map")).ok()?;
        numbers.extract::<HashMap<String, u64>>().ok()
    };
    let cells = numbers().into_iter().flatten();
    cells
        .map(|(file, number)| (file, format!("In[{number}]")))
        .collect()
}

/// Magics of a line or a cell that run no code of the program but that of modules.
const HARMLESS_MAGICS: [&str; 13] = [
    "load_ext",
    "bash",
    "sh",
    "html",
    "writefile",
    "matplotlib",
    "config",
    "env",
    "pip",
    "conda",
    "cd",
    "autoreload",
    "pwd",
];

/// In the names of the cells that `cyclescope run FILE.ipynb` compiles.
const CELL_OF_FILE: &str = ".ipynb cell ";

/// The text of each cell, as it was compiled; `None` if one is not there, or runs code that is in none.
///
/// `CachingCompiler.cache` puts it where tracebacks look for lines, and so does `cyclescope run`.
fn cell_texts(py: Python<'_>, cells: &Cells) -> Option<BTreeMap<String, String>> {
    let mut texts = BTreeMap::new();
    let known = imported(intern!(py, "linecache"));
    if let Some(lines) = known.and_then(|it| it.get_item(intern!(py, "cache")).ok()?) {
        dict_items(&lines, &mut |file, entry| {
            let file = text_of(file);
            let file = file.filter(|it| cells.contains_key(it) || it.contains(CELL_OF_FILE));
            let text = file.as_ref().and_then(|_| text_of_entry(entry));
            texts.extend(file.zip(text));
            true
        });
    }
    let are_all = cells.keys().all(|file| texts.contains_key(file));
    (are_all && !texts.values().any(|text| runs_other_code(text))).then_some(texts)
}

/// The lines of an entry of `linecache.cache`: size, time, lines and file.
fn text_of_entry(entry: &Bound<'_, PyAny>) -> Option<String> {
    let lines = entry.cast_exact::<PyTuple>().ok()?.get_item(2).ok()?;
    let lines: Vec<String> = lines.cast_exact::<PyList>().ok()?.extract().ok()?;
    Some(lines.concat())
}

/// True if the code of a cell, in which a magic is a call, runs code that is in a string or in a file.
fn runs_other_code(text: &str) -> bool {
    let mut parts = text.split("get_ipython().run_").skip(1);
    parts.any(|call| {
        let magic = ["line_magic('", "cell_magic('"];
        let magic = magic.iter().find_map(|it| call.strip_prefix(it));
        let magic = magic.and_then(|call| call.split('\'').next());
        magic.is_none_or(|name| !HARMLESS_MAGICS.contains(&name))
    })
}

/// Where the source of the program is, but for that of cyclescope. Reads the modules' own names and runs no code.
pub(super) fn program(py: Python<'_>, cells: &Cells) -> Program {
    let mut files = Vec::new();
    let mut is_typed_in = false;
    let (mut has_unread, mut main) = (false, None);
    each_module(py, &mut |name, module| {
        let name = text_of(name).unwrap_or_default();
        let Ok(names) = module.cast::<PyModule>().map(|module| module.dict()) else {
            return;
        };
        let has = |name| names.get_item(name).ok().flatten();
        is_typed_in |= name == "sys" && has(intern!(py, "ps1")).is_some();
        let is_ours = name.split('.').next() == Some("cyclescope");
        let file = file_in(names.as_any()).filter(|_| !is_ours);
        let file = file.map(|file| printable(&file));
        has_unread |= file
            .as_ref()
            .is_some_and(|file| file.ends_with(".pyc") && !is_library_file(file));
        let file = file.filter(|file| file.ends_with(".py"));
        if name == "__main__" {
            main.clone_from(&file);
        }
        files.extend(file.filter(|file| !is_library_file(file)));
    });
    files.sort_unstable();
    files.dedup();
    let texts = cell_texts(py, cells);
    // IPython sets `sys.ps1` too.
    let is_read = texts
        .as_ref()
        .is_some_and(|texts| !is_typed_in || !texts.is_empty());
    Program {
        files,
        cells: texts.unwrap_or_default(),
        is_typed_in: !is_read || has_unread,
        main,
    }
}

/// The names in `torch.distributed`, if the program has initialised its process group.
pub(super) fn process_group(py: Python<'_>) -> Option<Bound<'_, PyDict>> {
    let distributed = imported(intern!(py, "torch.distributed"))?;
    let says = |name| {
        distributed
            .get_item(name)
            .ok()??
            .call0()
            .ok()?
            .extract::<bool>()
            .ok()
    };
    let is_there = says(intern!(py, "is_available"))? && says(intern!(py, "is_initialized"))?;
    is_there.then_some(distributed)
}

/// So many modules that were imported last are asked whether their import has ended.
const RECENT: usize = 256;

/// The library module that is being imported now, the outermost one; `None` if none is, or it began long before.
///
/// `importlib` marks its specification (`_load_unlocked` in Lib/importlib/_bootstrap.py).
pub(super) fn importing(py: Python<'_>, builtins: &Builtins) -> Option<String> {
    // SAFETY: attached; the dict is borrowed from the interpreter.
    let modules = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyImport_GetModuleDict()) }?;
    let mut left = module_count(py);
    let mut found = None;
    dict_items(&modules, &mut |name, module| {
        left = left.saturating_sub(1);
        if left < RECENT && is_being_imported(builtins, module) && is_library_module(module) {
            found = text_of(name);
        }
        found.is_none()
    });
    found
}

fn is_being_imported(builtins: &Builtins, module: &Bound<'_, PyAny>) -> bool {
    let spec = || {
        let names = module.cast_exact::<PyModule>().ok()?.dict();
        let spec = find_item("__spec__", |f| dict_items(names.as_any(), f))?;
        attribute(&builtins.instances, &spec, "_initializing")
    };
    spec().is_some_and(|flag| flag.is(PyBool::new(module.py(), true)))
}

/// True for a module whose file is a library's.
pub(super) fn is_library_module(module: &Bound<'_, PyAny>) -> bool {
    let Ok(module) = module.cast::<PyModule>() else {
        return true;
    };
    let file = file_in(module.dict().as_any());
    file.is_none_or(|file| is_library_file(&file))
}

#[cfg(unix)]
fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the call writes at most the given number of bytes.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) } != 0;
    let end = name
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(name.len());
    if failed {
        String::new()
    } else {
        String::from_utf8_lossy(&name[..end]).into_owned()
    }
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// The versions of known frameworks among the imported modules, read from the modules' dictionaries.
pub(super) fn framework_versions(py: Python<'_>) -> Vec<(String, String)> {
    [
        "torch",
        "numpy",
        "cupy",
        "jax",
        "tensorflow",
        "lightning",
        "transformers",
    ]
    .into_iter()
    .filter_map(|name| {
        let module = imported(&new_text(py, name)?)?;
        let version = module.get_item(new_text(py, "__version__")?).ok()??;
        let version = text_of(&version)?;
        Some((name.to_owned(), version))
    })
    .collect()
}
