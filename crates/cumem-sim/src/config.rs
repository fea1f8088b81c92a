//! What a simulated driver is like.

use core::ffi::{c_int, c_void};
use core::time::Duration;
use std::collections::{HashMap, HashSet};

use cumem_sys::{CUdevice_attribute, CUresult};

use crate::fault::Fault;
use crate::sim::Sim;
use crate::table::{Call, ENTRIES, EntryKind};

const GIB: usize = 1 << 30;

/// How a simulated driver behaves; filled in by [`SimBuilder`] or from the environment.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) devices: c_int,
    pub(crate) memory_per_device: usize,
    pub(crate) host_memory: usize,
    pub(crate) managed_memory: usize,
    pub(crate) driver_version: c_int,
    pub(crate) missing: HashSet<Call>,
    pub(crate) stub: bool,
    pub(crate) init: CUresult,
    pub(crate) attributes: HashMap<c_int, c_int>,
    pub(crate) latency: HashMap<Call, Duration>,
    pub(crate) latency_of_all: Option<Duration>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) deinitialise_at_exit: bool,
    /// The function that a library exports under a name, if this is a library's driver.
    pub(crate) exported: Option<fn(&str) -> *mut c_void>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            devices: 1,
            memory_per_device: 16 * GIB,
            host_memory: 64 * GIB,
            managed_memory: 128 * GIB,
            driver_version: 13000,
            missing: HashSet::new(),
            stub: false,
            init: CUresult::CUDA_SUCCESS,
            attributes: HashMap::new(),
            latency: HashMap::new(),
            latency_of_all: None,
            faults: Vec::new(),
            deinitialise_at_exit: false,
            exported: None,
        }
    }
}

impl Config {
    /// Whether the driver has an entry point.
    pub(crate) fn has(&self, call: Call) -> bool {
        call.entry().since <= self.driver_version && !self.missing.contains(&call)
    }

    pub(crate) fn concurrent_managed_access(&self) -> bool {
        let key = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS.0 as c_int;
        self.attributes.get(&key) != Some(&0)
    }

    pub(crate) fn set_latency(&mut self, call: &str, latency: Duration) -> Result<(), String> {
        if call == "*" {
            self.latency_of_all = Some(latency);
        } else {
            self.latency.insert(entry_point(call)?, latency);
        }
        Ok(())
    }

    pub(crate) fn remove_symbol(&mut self, name: &str) -> Result<(), String> {
        self.missing.insert(entry_point(name)?);
        Ok(())
    }
}

fn entry_point(name: &str) -> Result<Call, String> {
    Call::named(name).ok_or_else(|| format!("the simulated driver has no entry point {name:?}"))
}

/// Describes a simulated driver: start with [`Sim::builder`], end with [`build`](Self::build).
///
/// ```
/// use cumem_sim::Sim;
///
/// let sim = Sim::builder().devices(4).memory_per_device(64 << 20).build();
/// let driver = sim.driver()?;
/// assert_eq!(driver.device_get_count(), Ok(4));
/// # Ok::<(), cumem_sys::LoadError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder makes nothing before `build`"]
pub struct SimBuilder {
    config: Config,
}

impl SimBuilder {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The number of devices; 1 if not said. With 0, `cuInit` answers `CUDA_ERROR_NO_DEVICE`.
    pub fn devices(mut self, count: u32) -> Self {
        self.config.devices = c_int::try_from(count).unwrap_or(c_int::MAX);
        self
    }

    /// The bytes that each device has for device, stream-ordered and physical memory; 16 GiB if not
    /// said. Memory is taken from the system only when it is written.
    pub fn memory_per_device(mut self, bytes: usize) -> Self {
        self.config.memory_per_device = bytes;
        self
    }

    /// The bytes that can be pinned; 64 GiB if not said.
    pub fn host_memory(mut self, bytes: usize) -> Self {
        self.config.host_memory = bytes;
        self
    }

    /// The bytes of managed memory, over all devices: more than a device has, as managed memory can
    /// be. 128 GiB if not said.
    pub fn managed_memory(mut self, bytes: usize) -> Self {
        self.config.managed_memory = bytes;
        self
    }

    /// The driver's version, as it counts; 13000 (13.0) if not said. An older driver lacks the
    /// entry points that came later.
    pub fn driver_version(mut self, version: i32) -> Self {
        self.config.driver_version = version;
        self
    }

    /// Removes an entry point, by its exact name.
    ///
    /// # Panics
    /// If there is no such entry point.
    #[track_caller]
    pub fn without_symbol(mut self, name: &str) -> Self {
        if let Err(message) = self.config.remove_symbol(name) {
            panic!("{message}");
        }
        self
    }

    /// Makes it the CUDA toolkit's stub: every call answers `CUDA_ERROR_STUB_LIBRARY`.
    pub fn stub(mut self, stub: bool) -> Self {
        self.config.stub = stub;
        self
    }

    /// What `cuInit` answers: `CUDA_ERROR_SYSTEM_DRIVER_MISMATCH` (803),
    /// `CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE` (804), or anything else.
    pub fn init_answers(mut self, code: CUresult) -> Self {
        self.config.init = code;
        self
    }

    /// Overrides an attribute of all devices.
    pub fn attribute(mut self, attribute: CUdevice_attribute, value: i32) -> Self {
        self.config.attributes.insert(attribute.0 as c_int, value);
        self
    }

    /// Whether host and device can touch managed memory at the same time; true if not said. Where
    /// they can't, as on Windows, advice and prefetching answer `CUDA_ERROR_INVALID_DEVICE`, and the
    /// host faults when it touches managed memory that was attached globally while any stream has
    /// work to do.
    pub fn concurrent_managed_access(self, can: bool) -> Self {
        self.attribute(
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
            i32::from(can),
        )
    }

    /// Has every call of an entry point take at least that long; `"*"` is all of them.
    ///
    /// # Panics
    /// If there is no such entry point.
    #[track_caller]
    pub fn latency(mut self, call: &str, latency: Duration) -> Self {
        if let Err(message) = self.config.set_latency(call, latency) {
            panic!("{message}");
        }
        self
    }

    /// Adds a fault from the start, `cuInit` included.
    pub fn fault(mut self, fault: Fault) -> Self {
        self.config.faults.push(fault);
        self
    }

    /// Has the driver shut down when the process exits: an exit handler that `cuInit` registers
    /// makes every later call answer `CUDA_ERROR_DEINITIALIZED`. Off if not said.
    pub fn deinitialise_at_exit(mut self, deinitialise: bool) -> Self {
        self.config.deinitialise_at_exit = deinitialise;
        self
    }

    /// Makes the simulated driver.
    ///
    /// One process holds 32 of them at a time; with all of them taken this waits for one to go.
    ///
    /// # Panics
    /// If all stay taken for two minutes.
    #[must_use]
    pub fn build(self) -> Sim {
        Sim::with(self.config)
    }

    pub(crate) fn exported_as(mut self, exported: fn(&str) -> *mut c_void) -> Self {
        self.config.exported = Some(exported);
        self
    }

    pub(crate) fn from_config(config: Config) -> Self {
        Self { config }
    }
}

/// Reads the variables `CUMEM_SIM_*`, as [`crate::environment`] documents them.
pub(crate) fn from_environment(
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, String> {
    let mut config = Config::default();
    if let Some(devices) = number(variable, "CUMEM_SIM_DEVICES")? {
        config.devices = devices;
    }
    for (name, target) in [
        ("CUMEM_SIM_MEMORY", &mut config.memory_per_device),
        ("CUMEM_SIM_HOST_MEMORY", &mut config.host_memory),
        ("CUMEM_SIM_MANAGED_MEMORY", &mut config.managed_memory),
    ] {
        if let Some(text) = variable(name) {
            *target = bytes(&text)
                .ok_or_else(|| format!("{name}={text:?} is not a number of bytes, such as 512M"))?;
        }
    }
    if let Some(version) = number(variable, "CUMEM_SIM_DRIVER_VERSION")? {
        config.driver_version = version;
    }
    if let Some(code) = number(variable, "CUMEM_SIM_INIT")? {
        config.init = CUresult(code);
    }
    config.stub = flag(variable, "CUMEM_SIM_STUB")?.unwrap_or(false);
    config.deinitialise_at_exit =
        flag(variable, "CUMEM_SIM_DEINITIALISE_AT_EXIT")?.unwrap_or(false);
    if let Some(can) = flag(variable, "CUMEM_SIM_CONCURRENT_MANAGED_ACCESS")? {
        let key = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS.0;
        config.attributes.insert(key as c_int, c_int::from(can));
    }
    for name in list(variable, "CUMEM_SIM_MISSING", ',') {
        config.remove_symbol(&name)?;
    }
    for pair in list(variable, "CUMEM_SIM_ATTRIBUTES", ',') {
        let parsed = pair
            .split_once('=')
            .and_then(|(key, value)| Some((key.trim().parse().ok()?, value.trim().parse().ok()?)));
        let (key, value) = parsed
            .ok_or_else(|| format!("{pair:?} in CUMEM_SIM_ATTRIBUTES is not NUMBER=VALUE"))?;
        config.attributes.insert(key, value);
    }
    for pair in list(variable, "CUMEM_SIM_LATENCY", ',') {
        let parsed = pair
            .split_once('=')
            .and_then(|(call, value)| Some((call.trim(), duration(value.trim())?)));
        let (call, latency) = parsed.ok_or_else(|| {
            format!("{pair:?} in CUMEM_SIM_LATENCY is not CALL=TIME, such as cuMemAlloc_v2=20us")
        })?;
        config.set_latency(call, latency)?;
    }
    for fault in list(variable, "CUMEM_SIM_FAULTS", ';') {
        config.faults.push(Fault::parse(&fault)?);
    }
    Ok(config)
}

type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

fn number<T: core::str::FromStr>(variable: Variable<'_>, name: &str) -> Result<Option<T>, String> {
    variable(name)
        .map(|text| {
            text.trim()
                .parse()
                .map_err(|_| format!("{name}={text:?} is not a number"))
        })
        .transpose()
}

fn flag(variable: Variable<'_>, name: &str) -> Result<Option<bool>, String> {
    Ok(number::<u8>(variable, name)?.map(|value| value != 0))
}

fn list(variable: Variable<'_>, name: &str, separator: char) -> Vec<String> {
    variable(name)
        .unwrap_or_default()
        .split(separator)
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

fn bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, shift) = match text.char_indices().next_back()? {
        (at, 'K' | 'k') => (&text[..at], 10),
        (at, 'M' | 'm') => (&text[..at], 20),
        (at, 'G' | 'g') => (&text[..at], 30),
        _ => (text, 0),
    };
    digits.trim().parse::<usize>().ok()?.checked_mul(1 << shift)
}

fn duration(text: &str) -> Option<Duration> {
    let parse = |digits: &str| digits.trim().parse::<u64>().ok();
    if let Some(digits) = text.strip_suffix("us") {
        parse(digits).map(Duration::from_micros)
    } else if let Some(digits) = text.strip_suffix("ms") {
        parse(digits).map(Duration::from_millis)
    } else if let Some(digits) = text.strip_suffix("ns") {
        parse(digits).map(Duration::from_nanos)
    } else {
        None
    }
}

/// The names that a driver of some version has.
pub(crate) fn names_since(version: c_int) -> impl Iterator<Item = &'static str> {
    ENTRIES
        .iter()
        .filter(move |entry| entry.kind != EntryKind::Legacy && entry.since > version)
        .map(|entry| entry.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Config, String> {
        from_environment(&|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_says_it_all() {
        let config = read(&[
            ("CUMEM_SIM_DEVICES", "3"),
            ("CUMEM_SIM_MEMORY", "512M"),
            ("CUMEM_SIM_HOST_MEMORY", "2g"),
            ("CUMEM_SIM_MANAGED_MEMORY", "4096"),
            ("CUMEM_SIM_DRIVER_VERSION", "11040"),
            ("CUMEM_SIM_STUB", "1"),
            ("CUMEM_SIM_INIT", "804"),
            ("CUMEM_SIM_MISSING", "cuMemAdvise_v2, cuMemAdvise"),
            ("CUMEM_SIM_ATTRIBUTES", "16=7"),
            ("CUMEM_SIM_CONCURRENT_MANAGED_ACCESS", "0"),
            ("CUMEM_SIM_LATENCY", "cuMemFree_v2=3us,*=1ns"),
            (
                "CUMEM_SIM_FAULTS",
                "cuMemFree_v2:nth=3:999; *:p=0.5:seed=4:times=2:2",
            ),
            ("CUMEM_SIM_DEINITIALISE_AT_EXIT", "1"),
        ])
        .unwrap();
        assert_eq!(config.devices, 3);
        assert_eq!(config.memory_per_device, 512 << 20);
        assert_eq!(config.host_memory, 2 << 30);
        assert_eq!(config.managed_memory, 4096);
        assert!(config.stub && config.deinitialise_at_exit);
        assert_eq!(config.init.0, 804);
        assert!(!config.has(Call::cuMemAdvise));
        assert!(!config.has(Call::cuMemAdvise_v2), "missing, and too new");
        assert!(!config.has(Call::cuGetProcAddress_v2), "too new");
        assert!(config.has(Call::cuMemAllocAsync));
        assert!(!config.concurrent_managed_access());
        assert_eq!(config.attributes[&16], 7);
        assert_eq!(
            config.latency[&Call::cuMemFree_v2],
            Duration::from_micros(3)
        );
        assert_eq!(config.latency_of_all, Some(Duration::from_nanos(1)));
        assert_eq!(config.faults.len(), 2);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (name, value) in [
            ("CUMEM_SIM_DEVICES", "many"),
            ("CUMEM_SIM_MEMORY", "12Q"),
            ("CUMEM_SIM_MISSING", "cuNothing"),
            ("CUMEM_SIM_ATTRIBUTES", "7"),
            ("CUMEM_SIM_LATENCY", "cuInit=3"),
            ("CUMEM_SIM_FAULTS", "cuInit:nth=0:1"),
            ("CUMEM_SIM_FAULTS", "cuInit:nth=1"),
            ("CUMEM_SIM_FAULTS", "cuNothing:always:1"),
            ("CUMEM_SIM_FAULTS", "cuInit:p=2:1"),
        ] {
            let message = read(&[(name, value)]).expect_err(value);
            assert!(!message.is_empty());
        }
    }
}
