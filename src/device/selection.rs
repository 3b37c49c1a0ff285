//! Which devices a watch is about.

use std::fmt;
use std::str::FromStr;
use std::sync::RwLock;

/// Any device but the host.
const ACCELERATOR: &str = "gpu";

/// Host memory: all of it, what is locked in place for a GPU to reach, and what processes share.
const HOST: [&str; 3] = ["cpu", "pinned", "shared"];

/// The kinds of device that PyTorch and JAX know by name, and those of host memory.
const KINDS: [&str; 20] = [
    "cuda",
    "cpu",
    "pinned",
    "shared",
    ACCELERATOR,
    "tpu",
    "rocm",
    "xpu",
    "mps",
    "hpu",
    "npu",
    "xla",
    "mtia",
    "hip",
    "ipu",
    "vulkan",
    "privateuseone",
    "maia",
    "musa",
    "mlu",
];

/// The kinds that the program added.
static ADDED: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// A set of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceSelection {
    /// Every device, host memory included.
    Any,
    /// The devices named, each with a number or, without, all of its kind.
    Some(Vec<(String, Option<u32>)>),
}

/// What is wrong with the name of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDevice(String);

impl fmt::Display for UnknownDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = ["cuda", "gpu", "cpu"];
        let others: Vec<String> = kinds()
            .into_iter()
            .filter(|it| !named.contains(&it.as_str()))
            .collect();
        write!(
            f,
            "{:?} is not a device: use 'any' for all memory, 'cuda' for all of NVIDIA's GPUs, 'cuda:0' for one, 'gpu' \
             for every accelerator, 'cpu' for host memory, or another of {}",
            self.0,
            others.join(", ")
        )
    }
}

impl std::error::Error for UnknownDevice {}

impl DeviceSelection {
    /// The set of all devices that one of `names` stands for.
    ///
    /// # Errors
    /// If a name is not a device.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, UnknownDevice> {
        let mut devices = Vec::new();
        let mut any = false;
        for name in names {
            match name.parse()? {
                Self::Any => any = true,
                Self::Some(more) => devices.extend(more),
            }
        }
        Ok(if any { Self::Any } else { Self::Some(devices) })
    }

    /// True if `device`, such as `cuda:0`, is in the set.
    pub fn contains(&self, device: &str) -> bool {
        let Self::Some(devices) = self else {
            return true;
        };
        let (kind, number) = split(device);
        devices.iter().any(|(wanted, wanted_number)| {
            is_kind(wanted, kind)
                && (wanted_number.is_none() || *wanted_number == number.or(Some(0)))
        })
    }

    /// True if some device of `kind` is in the set.
    pub fn includes_kind(&self, kind: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Some(devices) => devices.iter().any(|(wanted, _)| is_kind(wanted, kind)),
        }
    }

    /// True if some host memory is in the set.
    pub fn includes_host(&self) -> bool {
        HOST.iter().any(|kind| self.includes_kind(kind))
    }

    /// The union of two sets.
    pub fn with(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Some(mut devices), Self::Some(more)) => {
                devices.extend(more.iter().cloned());
                Self::Some(devices)
            }
            _ => Self::Any,
        }
    }
}

/// The kinds that a device may be of.
pub(crate) fn kinds() -> Vec<String> {
    let added = ADDED.read();
    let added = added.iter().flat_map(|added| added.iter().cloned());
    KINDS.map(str::to_owned).into_iter().chain(added).collect()
}

/// Adds a kind of device, such as that of a backend which PyTorch knows as `privateuseone`.
///
/// # Errors
/// If it is no name for one: these are of lowercase letters, digits and underscores, and begin with a letter.
#[cfg(feature = "python")]
pub(crate) fn add_kind(kind: &str) -> Result<(), UnknownDevice> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_named = kind.starts_with(|c: char| c.is_ascii_lowercase()) && kind.chars().all(is_name);
    if !is_named || ["any", "meta", ACCELERATOR].contains(&kind) {
        return Err(UnknownDevice(kind.to_owned()));
    }
    if !is_known(kind)
        && let Ok(mut added) = ADDED.write()
    {
        added.push(kind.to_owned());
    }
    Ok(())
}

fn is_known(kind: &str) -> bool {
    let is_added = |added: &Vec<String>| added.iter().any(|it| it == kind);
    KINDS.contains(&kind) || ADDED.read().is_ok_and(|added| is_added(&added))
}

/// True for a device that is host memory.
pub(crate) fn is_host(device: &str) -> bool {
    HOST.contains(&split(device).0)
}

fn is_kind(wanted: &str, kind: &str) -> bool {
    wanted == kind
        || (is_host(kind) && wanted == "cpu")
        || (!is_host(kind) && wanted == ACCELERATOR)
}

impl FromStr for DeviceSelection {
    type Err = UnknownDevice;

    fn from_str(name: &str) -> Result<Self, UnknownDevice> {
        if name == "any" {
            return Ok(Self::Any);
        }
        let (kind, number) = split(name);
        let numbered = name.contains(':');
        if !is_known(kind) || (numbered && number.is_none()) {
            return Err(UnknownDevice(name.to_owned()));
        }
        // As for PyTorch, host memory is one whatever number a program gives it.
        let number = number.filter(|_| !HOST.contains(&kind));
        Ok(Self::Some(vec![(kind.to_owned(), number)]))
    }
}

/// The kind and the number of a device's name.
fn split(device: &str) -> (&str, Option<u32>) {
    match device.split_once(':') {
        Some((kind, number)) => {
            // A number is digits: "+1" is none.
            let digits = number.bytes().all(|byte| byte.is_ascii_digit());
            (kind, digits.then(|| number.parse().ok()).flatten())
        }
        None => (device, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_stands_for_all_its_devices() {
        let cuda: DeviceSelection = "cuda".parse().expect("a device");
        assert!(cuda.contains("cuda:0") && cuda.contains("cuda:7") && cuda.contains("cuda"));
        assert!(!cuda.contains("cpu") && !cuda.contains("meta"));
    }

    #[test]
    fn a_number_stands_for_one_device() {
        let first = DeviceSelection::parse(["cuda:1", "cpu"]).expect("devices");
        assert!(first.contains("cuda:1") && first.contains("cpu"));
        assert!(!first.contains("cuda:0"));
    }

    #[test]
    fn a_gpu_is_any_accelerator() {
        let all: DeviceSelection = "gpu".parse().expect("a device");
        assert!(all.contains("cuda:0") && all.contains("mps:0") && all.contains("tpu:3"));
        assert!(!all.contains("cpu") && !all.includes_kind("cpu") && all.includes_kind("cuda"));
        let second: DeviceSelection = "gpu:1".parse().expect("a device");
        assert!(second.contains("cuda:1") && !second.contains("cuda:0"));
    }

    #[test]
    fn the_host_has_memory_of_several_kinds() {
        let pinned: DeviceSelection = "pinned".parse().expect("a device");
        assert!(pinned.contains("pinned") && pinned.includes_host());
        assert!(
            !pinned.contains("cpu") && !pinned.contains("shared") && !pinned.contains("cuda:0")
        );
        let numbered: DeviceSelection = "cpu:1".parse().expect("a device");
        assert!(numbered.contains("cpu"));
        let host: DeviceSelection = "cpu".parse().expect("a device");
        assert!(host.contains("cpu") && host.contains("pinned") && host.contains("shared"));
        let gpu: DeviceSelection = "gpu".parse().expect("a device");
        assert!(!gpu.contains("pinned") && !gpu.contains("shared") && !gpu.includes_host());
    }

    #[test]
    fn any_wins() {
        let any = DeviceSelection::parse(["cuda:1", "any"]).expect("devices");
        assert!(any.contains("xpu:3"));
        DeviceSelection::parse(["any", "bogus"]).expect_err("not a device");
    }

    #[test]
    fn what_is_no_device_is_named() {
        for wrong in ["gpus", "cuda:", "cuda:x", "cuda:+1", "cuda:-1", "", "CUDA"] {
            let error = wrong.parse::<DeviceSelection>().expect_err("not a device");
            assert!(error.to_string().contains(&format!("{wrong:?}")), "{error}");
        }
    }
}
