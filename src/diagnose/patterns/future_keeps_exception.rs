//! # Future or task keeps its exception
//!
//! A function that fails has the future or task that its exception is stored in among its variables.
//!
//! **Why it leaks.** The future keeps the exception, the exception its traceback, the traceback the
//! frame of every function that it passed through, and one of these frames has the future.
//!
//! ```python
//! async def serve():
//!     task = asyncio.current_task()
//!     ...                        # raises: task → exception → traceback → frame → task
//! ```
//!
//! Instead, use `try: … finally: del task`, as the standard library does in its own futures, or ask for
//! the task where it is needed and do not keep it.

use crate::capture::ReferenceName;
use crate::cpython::ObjectKind;
use crate::diagnose::case::{Case, at, short};
use crate::diagnose::patterns::{Advice, Pattern};

pub const PATTERN: Pattern = Pattern {
    name: "future-keeps-exception",
    recognise,
};

fn recognise(case: &Case<'_>) -> Option<Advice> {
    let (_, future) = case.find(|step| {
        step.object.description.kind == ObjectKind::Instance
            && *step.name == ReferenceName::Attribute("_exception".to_owned())
            && step.next.description.kind == ObjectKind::Exception
    })?;
    let (frame, variable, function) = case.frame_variable()?;
    let what = short(&future.object.description.type_name);
    let exception = short(&future.next.description.type_name);
    let text = format!(
        "A {what} keeps the {exception} that it ended with, whose traceback keeps the frame of \
         `{function}`{}; there the local variable `{variable}` leads back to the {what}. Delete \
         `{variable}` when the function ends.",
        at(frame.object)
    );
    Some(if std::ptr::eq(frame.next, future.object) {
        Advice::new(
            text,
            format!("{variable} = ...\n..."),
            format!("{variable} = ...\ntry:\n    ...\nfinally:\n    del {variable}"),
        )
    } else {
        Advice::words(text)
    })
}
