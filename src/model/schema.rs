//! The JSON Schemas in `docs/schema/` are those of the models. `APPROVE_SCHEMA=1` writes them.

use std::path::PathBuf;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::device_memory::DeviceMemory;
use super::diff::Diff;
use super::growth::GrowthReport;
use super::heap::{Heap, Table};
use super::post_mortem::PostMortem;
use super::report::{Report, SCHEMA};
use super::retention::Retention;

/// The schema of what is written, with what it is called.
fn schema<T: JsonSchema>(title: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), json!(title));
    simplified(schema.to_value())
}

/// Without `uint64` and similar formats, which are OpenAPI formats that validators do not know, and without links.
fn simplified(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(fields) => {
            if fields.get("format").is_some_and(Value::is_string) {
                fields.remove("format");
            }
            for value in fields.values_mut() {
                *value = simplified(value.take());
            }
        }
        Value::Array(items) => {
            for value in items {
                *value = simplified(value.take());
            }
        }
        // Links of the Rust documentation mean nothing to who reads a schema.
        Value::String(text) => *text = text.replace("[`", "`").replace("`]", "`"),
        _ => {}
    }
    schema
}

/// The schema of a model that `json::versioned` writes.
fn versioned<T: JsonSchema>(title: &str, kind: &str) -> Value {
    let mut schema = schema::<T>(title);
    schema["properties"]["schema"] = json!({ "const": SCHEMA });
    schema["properties"]["kind"] = json!({ "const": kind });
    if let Some(required) = schema["required"].as_array_mut() {
        required.extend([json!("schema"), json!("kind")]);
    }
    schema
}

#[test]
fn the_published_schemas_are_those_of_the_models() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/schema");
    for (name, schema) in [
        ("cycles", schema::<Report>("Reference cycles")),
        ("heap", schema::<Heap>("Live memory")),
        ("heap-table", schema::<Table>("Live memory by owner")),
        ("heap-diff", schema::<Diff>("Changes of live memory")),
        ("why-alive", schema::<Retention>("What keeps objects alive")),
        (
            "growth",
            versioned::<GrowthReport>("Memory that grows", "growth"),
        ),
        (
            "out-of-memory",
            versioned::<PostMortem>("An out-of-memory error", "out-of-memory"),
        ),
        (
            "device-memory",
            versioned::<DeviceMemory>("All memory of a GPU", "device-memory"),
        ),
    ] {
        assert!(schema["required"].is_array(), "{name} has fields");
        let text = format!("{schema:#}\n");
        let file = folder.join(format!("{name}.json"));
        if std::env::var_os("APPROVE_SCHEMA").is_some() {
            std::fs::create_dir_all(&folder).expect("the folder of the documentation");
            std::fs::write(&file, &text).expect("a file of the documentation");
        }
        let published = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            published == text,
            "APPROVE_SCHEMA=1 cargo test --no-default-features --lib schema renews {}",
            file.display()
        );
    }
}
