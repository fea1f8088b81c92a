//! How the environment describes the simulated driver, for the library that is loaded as
//! `libcuda.so.1` and for [`Sim::builder_from_environment`](crate::Sim::builder_from_environment).
//!
//! | variable | meaning | if not set |
//! | --- | --- | --- |
//! | `CUMEM_SIM_DEVICES` | number of devices | 1 |
//! | `CUMEM_SIM_MEMORY` | bytes per device; `K`, `M`, `G` may follow | 16G |
//! | `CUMEM_SIM_HOST_MEMORY` | bytes that can be pinned | 64G |
//! | `CUMEM_SIM_MANAGED_MEMORY` | bytes of managed memory, over all devices | 128G |
//! | `CUMEM_SIM_DRIVER_VERSION` | 12020 is 12.2; `cuGetProcAddress_v2` finds nothing newer | 13000 |
//! | `CUMEM_SIM_MISSING` | exact names, by comma, that `cuGetProcAddress_v2` doesn't find | |
//! | `CUMEM_SIM_STUB` | 1: every call answers 34 | 0 |
//! | `CUMEM_SIM_INIT` | the code that `cuInit` answers, such as 803 or 804 | 0 |
//! | `CUMEM_SIM_CONCURRENT_MANAGED_ACCESS` | 0: as on Windows | 1 |
//! | `CUMEM_SIM_ATTRIBUTES` | device attributes: `NUMBER=VALUE`, by comma | |
//! | `CUMEM_SIM_LATENCY` | `CALL=TIME` (`ns`, `us`, `ms`), by comma; `*` is every call | |
//! | `CUMEM_SIM_FAULTS` | faults, by semicolon, see below | |
//! | `CUMEM_SIM_DEINITIALISE_AT_EXIT` | 1: calls after the exit handler answer 4 | 0 |
//! | `CUMEM_SIM_BOOKS` | `stderr` (or 1), or a file that the books are written to at exit | |
//!
//! A fault is `CALL:WHEN:CODE` or `CALL:WHEN:times=K:CODE`, where `WHEN` is `nth=N`, `always`, or
//! `p=P:seed=S`: `cuMemAlloc_v2:nth=3:2;cuMemFree_v2:p=0.33:seed=7:999`.
//!
//! Symbols that a library exports can't be taken away while it is loaded. [`hide_symbols`] makes a
//! copy of the library that lacks some of them.

use std::collections::BTreeSet;

use crate::config;

/// Takes exported symbols out of the image of a shared library (ELF), by spoiling their names: the
/// dynamic loader then finds none of them. Returns how many of the names were found.
///
/// For testing what a program does with an old driver: write the changed image to another file, and
/// have the program load that.
///
/// ```
/// let mut image = b"\0cuInit\0cuMemFree\0cuMemFree_v2\0".to_vec();
/// assert_eq!(cumem_sim::environment::hide_symbols(&mut image, &["cuMemFree", "cuNothing"]), 1);
/// assert_eq!(image, b"\0cuInit\0-uMemFree\0cuMemFree_v2\0");
/// ```
pub fn hide_symbols(image: &mut [u8], names: &[&str]) -> usize {
    let mut hidden = BTreeSet::new();
    if names.is_empty() {
        return 0;
    }
    // A name stands between two zero bytes.
    for text in image.split_mut(|&byte| byte == 0).skip(1) {
        if let Some(name) = names
            .iter()
            .find(|name| !text.is_empty() && name.as_bytes() == text)
        {
            hidden.insert(*name);
            text[0] = b'-';
        }
    }
    hidden.len()
}

/// The exact names that came after a driver version: what [`hide_symbols`] is to hide to make a
/// library of that version.
pub fn symbols_after(version: i32) -> impl Iterator<Item = &'static str> {
    config::names_since(version)
}
