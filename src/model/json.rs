//! The models as JSON, and the report back.

use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::report::{Report, SCHEMA};

/// Larger files are rejected unread.
pub const MAX_BYTES: usize = 64 << 20;

/// A model as JSON on one line, to write to a log or to send.
pub fn to_json(model: &impl Serialize) -> String {
    serde_json::to_string(model).expect("plain structs and strings always serialise")
}

/// The report as indented JSON, to read.
pub fn to_json_pretty(report: &Report) -> String {
    serde_json::to_string_pretty(report).expect("plain structs and strings always serialise")
}

/// Another model as JSON, with the version of its form and what it is.
pub fn versioned(kind: &str, model: &impl Serialize) -> Value {
    let mut found = json!({ "schema": SCHEMA, "kind": kind });
    if let (Some(fields), Ok(Value::Object(more))) =
        (found.as_object_mut(), serde_json::to_value(model))
    {
        fields.extend(more);
    }
    found
}

/// Reads a report written by [`to_json`], of this version of cyclescope or an earlier one.
pub fn from_json(text: &str) -> Result<Report, ReadError> {
    if text.len() > MAX_BYTES {
        return Err(ReadError::TooLarge);
    }
    if let Some(schema) = serde_json::from_str::<Header>(text)
        .ok()
        .and_then(|h| h.schema)
        && schema > u64::from(SCHEMA)
    {
        return Err(ReadError::Newer(schema));
    }
    serde_json::from_str(text).map_err(|error| match not_json(text) {
        None => ReadError::NotAReport(missing(&error)),
        Some(why) => ReadError::NotJson(why),
    })
}

/// Reads another model that [`to_json`] or [`versioned`] wrote; each has the field that it `needs`, if any.
///
/// # Errors
/// A sentence that says what the text is in place of the JSON of a `class`.
pub fn model_from_json<T: DeserializeOwned>(
    text: &str,
    class: &str,
    needs: Option<&str>,
) -> Result<T, String> {
    let not = |why: String| format!("this is {why}: pass the text that {class}.to_json() returned");
    let wrong = |error: serde_json::Error| match not_json(text) {
        None => not(format!("JSON, but not of a {class}{}", missing(&error))),
        Some(why) => not(format!("not JSON ({why})")),
    };
    if let Some(field) = needs {
        let fields: HashMap<String, IgnoredAny> = serde_json::from_str(text).map_err(wrong)?;
        if !fields.contains_key(field) {
            return Err(not(format!("JSON, but not of a {class}")));
        }
    }
    serde_json::from_str(text).map_err(wrong)
}

/// Why a text is not JSON at all; `None` if it is.
fn not_json(text: &str) -> Option<String> {
    let read = serde_json::from_str::<IgnoredAny>(text);
    read.err().map(|error| error.to_string())
}

/// Which field is missing, in brackets. Empty if all of it is something else, for which serde has only names of Rust.
fn missing(error: &serde_json::Error) -> String {
    let sentence = error.to_string();
    let (what, _where) = sentence.split_once(" at line ").unwrap_or((&sentence, ""));
    match what.starts_with("missing field") {
        true => format!(" ({what})"),
        false => String::new(),
    }
}

/// The fields common to all versions of the report.
#[derive(Deserialize)]
struct Header {
    schema: Option<u64>,
}

/// Why a text could not be read as a report.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// Longer than [`MAX_BYTES`].
    TooLarge,
    /// Not JSON at all; holds what is wrong where.
    NotJson(String),
    /// JSON, but of something else; holds what is missing, in brackets, if only some fields are.
    NotAReport(String),
    /// Written by a later version of cyclescope; holds the version of its schema.
    Newer(u64),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Whoever reads the file may have stopped at the limit.
            ReadError::TooLarge => write!(
                f,
                "this file has more than the {MAX_BYTES} bytes that a cyclescope report can have"
            ),
            ReadError::NotJson(why) => {
                write!(
                    f,
                    "this is not JSON ({why}): pass the .json file of a cyclescope report"
                )
            }
            ReadError::NotAReport(why) => {
                write!(
                    f,
                    "this is JSON, but not a cyclescope report{why}: pass a .json file of reference cycles that \
                     cyclescope wrote"
                )
            }
            ReadError::Newer(schema) => write!(
                f,
                "this report has schema {schema}, but this version of cyclescope supports only \
                 schemas up to {SCHEMA}: upgrade cyclescope to read it"
            ),
        }
    }
}

impl std::error::Error for ReadError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::device_memory::DeviceMemory;
    use crate::render::samples;

    #[test]
    fn every_report_comes_back_as_it_was() {
        for report in [
            samples::callback(),
            samples::linked_nodes_and_exception(),
            samples::million_ring(),
            samples::no_leaks(),
            samples::hostile(),
        ] {
            assert_eq!(from_json(&to_json(&report)), Ok(report.clone()));
            assert_eq!(from_json(&to_json_pretty(&report)), Ok(report));
        }
        assert_eq!(to_json(&samples::hostile()).lines().count(), 1);
    }

    #[test]
    fn fields_of_a_later_release_are_skipped() {
        let json = to_json(&samples::no_leaks()).replacen('{', "{\"colour\":[1,{}],", 1);
        assert_eq!(from_json(&json), Ok(samples::no_leaks()));
    }

    fn sentence(text: &str) -> String {
        from_json(text).expect_err("must not be read").to_string()
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        assert!(sentence("").starts_with("this is not JSON (EOF while parsing"));
        assert!(sentence("{'a': 1}").starts_with("this is not JSON"));
        let json = to_json(&samples::callback());
        assert!(sentence(&json[..json.len() / 2]).starts_with("this is not JSON"));
        assert!(sentence(&"[".repeat(100_000)).starts_with("this is "));
        for other in [
            "{}",
            "[]",
            "null",
            "{\"schema\": 1}",
            "{\"schema\": \"one\"}",
        ] {
            assert!(
                sentence(other).contains("not a cyclescope report"),
                "{other}"
            );
        }
    }

    #[test]
    fn another_model_says_what_it_is_not() {
        let read = |text: &str| {
            model_from_json::<DeviceMemory>(text, "DeviceMemory", Some("device")).map(drop)
        };
        let written = versioned("device-memory", &DeviceMemory::default());
        assert_eq!(read(&written.to_string()), Ok(()));
        let another = "this is JSON, but not of a DeviceMemory: pass";
        for (text, what) in [
            ("memory.json", "this is not JSON ("),
            ("[", "this is not JSON ("),
            ("[1]", another),
            ("{}", another),
            (&to_json(&samples::callback()), another),
        ] {
            let error = read(text).expect_err("it is none");
            assert!(error.starts_with(what), "{error}");
            assert!(!error.contains("struct"), "{error}");
        }
    }

    #[test]
    fn a_newer_schema_asks_for_an_upgrade_whatever_its_fields() {
        let newer = "{\"schema\": 2, \"leaks\": \"elsewhere\"}";
        assert_eq!(from_json(newer), Err(ReadError::Newer(2)));
        assert!(sentence(newer).contains("schema 2") && sentence(newer).contains("upgrade"));
        let json = to_json(&samples::callback()).replacen("\"schema\":1", "\"schema\":99", 1);
        assert_eq!(from_json(&json), Err(ReadError::Newer(99)));
    }

    #[test]
    fn huge_files_are_refused_unread() {
        let huge = " ".repeat(MAX_BYTES + 1);
        assert_eq!(from_json(&huge), Err(ReadError::TooLarge));
    }
}
