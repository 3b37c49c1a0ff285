"""Extension modules that are compiled on the fly, for ``extension_programs/packages.py``.

``python compiled.py FOLDER`` compiles what the packages that are installed allow, into FOLDER.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

CYTHON = """
# cython: language_level=3

cdef class Plain:
    cdef public object one, other
    cdef object __weakref__

cdef class Open:
    cdef dict __dict__
    cdef object __weakref__
    cdef public object one

cdef class Final:
    cdef public object one, name
    def __del__(self):
        print("cython del", self.name, type(self.one).__name__)

cdef class Deallocated:
    cdef public object one
    cdef int number
    def __init__(self, number):
        self.number = number
    def __dealloc__(self):
        print("cython dealloc", self.number)

cimport cython

@cython.no_gc_clear
cdef class KeptWhole:
    cdef public object one, other

@cython.freelist(4)
cdef class Reused:
    cdef public object one

cdef class Inherits(Plain):
    cdef public list several

def generate(it):
    try:
        yield it
        yield it.one
    finally:
        print("cython finally", it.name)

async def wait_for(it):
    try:
        await it
    finally:
        print("cython coroutine ends")

def closure(it):
    def inner(more=it):
        return it, more, inner
    return inner
"""

PYBIND = """
#include <pybind11/pybind11.h>
#include <pybind11/functional.h>
#include <cstdio>
#include <memory>
namespace py = pybind11;

struct Open {
    explicit Open(int number) : number(number) {}
    ~Open() { py::print("pybind11 destructor", number); }
    int number;
};

// Holds a Python object that the collector is not told of.
struct Hides { py::object one; };

// Holds one that it is told of.
struct Shows { py::object one; };

struct Calls { std::function<int(int)> function; };

int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    auto& it = py::cast<Shows&>(py::handle(self));
    Py_VISIT(it.one.ptr());
    return 0;
}

int clear(PyObject* self) {
    auto& it = py::cast<Shows&>(py::handle(self));
    py::object old = std::move(it.one);
    it.one = py::none();
    return 0;
}

PYBIND11_MODULE(harmless_pybind, m) {
    py::class_<Open, std::shared_ptr<Open>>(m, "Open", py::dynamic_attr())
        .def(py::init<int>()).def_readwrite("number", &Open::number);
    py::class_<Hides>(m, "Hides", py::dynamic_attr())
        .def(py::init<>()).def_readwrite("one", &Hides::one);
    py::class_<Shows>(m, "Shows", py::custom_type_setup([](PyHeapTypeObject* heap) {
        auto* type = &heap->ht_type;
        type->tp_flags |= Py_TPFLAGS_HAVE_GC;
        type->tp_traverse = traverse;
        type->tp_clear = clear;
    })).def(py::init<>()).def_readwrite("one", &Shows::one);
    py::class_<Calls>(m, "Calls", py::dynamic_attr())
        .def(py::init<>()).def_readwrite("function", &Calls::function);
    m.def("keeps", [](py::object owner, py::object kept) { return owner; }, py::keep_alive<1, 2>());
}
"""

C = """
#include <Python.h>

extern "C" {
typedef struct { PyObject_HEAD PyObject *one; int is_lazy; } Holds;

int traverse(PyObject *self, visitproc visit, void *arg) {
    Holds *it = (Holds *)self;
    Py_VISIT(Py_TYPE(self));
    if (it->is_lazy && it->one == NULL) {  // A collector must expect no new objects here.
        it->is_lazy = 0;
        it->one = PyList_New(0);
    }
    Py_VISIT(it->one);
    return 0;
}

int clear(PyObject *self) { Py_CLEAR(((Holds *)self)->one); return 0; }

void dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

void complain(PyObject *self) { PyErr_SetString(PyExc_ValueError, "left by a finalizer"); }

PyObject *hold(PyObject *self, PyObject *one) {
    Py_INCREF(one);
    Py_XSETREF(((Holds *)self)->one, one);
    Py_RETURN_NONE;
}

PyObject *be_lazy(PyObject *self, PyObject *unused) {
    ((Holds *)self)->is_lazy = 1;
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"hold", hold, METH_O, NULL}, {"be_lazy", be_lazy, METH_NOARGS, NULL}, {NULL}};

int add(PyObject *module, const char *name, destructor finalize) {
    PyType_Slot slots[] = {
        {Py_tp_traverse, (void *)traverse}, {Py_tp_clear, (void *)clear},
        {Py_tp_dealloc, (void *)dealloc}, {Py_tp_methods, methods},
        {finalize ? Py_tp_finalize : 0, (void *)finalize}, {0, NULL}};
    unsigned int flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
    PyType_Spec spec = {name, sizeof(Holds), 0, flags, slots};
    return PyModule_AddObject(module, strchr(name, '.') + 1, PyType_FromSpec(&spec));
}

int fill(PyObject *module) {
    return add(module, "harmless_c.Lazy", NULL) || add(module, "harmless_c.Complains", complain);
}

PyModuleDef_Slot module_slots[] = {{Py_mod_exec, (void *)fill}, {0, NULL}};
PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "harmless_c", NULL, 0, NULL, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_harmless_c(void) { return PyModuleDef_Init(&module); }
}
"""


def compile_into(folder: Path) -> list[str]:
    """The modules that can be imported from the folder then; what is there already is left."""
    compiler = shutil.which("c++") or shutil.which("g++")
    include = Path(sysconfig.get_path("include"))
    if compiler is None or not (include / "Python.h").exists():
        return []
    # Debian's header for the machine's kind is named from the folder above.
    headers = [f"-I{include}", f"-I{include.parent}"]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    made = []
    for name, package, source in (
        ("harmless_cython", "Cython", CYTHON),
        ("harmless_pybind", "pybind11", PYBIND),
        ("harmless_c", "", C),
    ):
        target = folder / f"{name}{suffix}"
        if package and importlib.util.find_spec(package) is None:
            continue
        if not target.exists():
            code = folder / f"{name}.cpp"
            flags = ["-shared", "-fPIC", "-O1", "-std=c++17", "-w"]
            if package == "Cython":
                (folder / f"{name}.pyx").write_text(source, encoding="utf-8")
                command = [sys.executable, "-m", "cython", "--cplus", f"{name}.pyx"]
                subprocess.run(command, cwd=folder, check=True, capture_output=True)
            else:
                code.write_text(source, encoding="utf-8")
            if package == "pybind11":
                command = [sys.executable, "-m", "pybind11", "--includes"]
                said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                flags += [*shlex.split(said), "-fvisibility=hidden"]
            command = [compiler, *flags, *headers, str(code), "-o", str(target)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{name} cannot be compiled: {done.stderr[:500]}", file=sys.stderr)
                continue
        made.append(name)
    return made


if __name__ == "__main__":
    print(*compile_into(Path(sys.argv[1])))
