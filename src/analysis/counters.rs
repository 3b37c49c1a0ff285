//! What the operating system counts of this process.

use std::fs;

use crate::model::growth::Counters;

fn status() -> String {
    fs::read_to_string("/proc/self/status").unwrap_or_default()
}

fn value(status: &str, name: &str) -> u64 {
    let mut lines = status.lines();
    let rest = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.unwrap_or_default()
}

/// The counters now; 0 where the system does not say.
pub(super) fn counters() -> Counters {
    let status = status();
    let value = |name| value(&status, name);
    Counters {
        resident: value("VmRSS") << 10,
        threads: value("Threads"),
        // One of them is the folder's own.
        files: fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64 - 1),
        ..Counters::default()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn another_file_and_another_thread_are_counted() {
        let before = counters();
        assert!(before.resident > 1 << 16 && before.threads >= 1 && before.files >= 3);
        let files: Vec<fs::File> = (0..50)
            .filter_map(|_| fs::File::open("/dev/null").ok())
            .collect();
        // Other tests run beside this one.
        assert!(counters().files >= before.files + 25);
        drop(files);
    }
}
