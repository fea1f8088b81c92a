//! Which driver the suite runs against.

use core::ffi::{CStr, c_void};
use std::ffi::CString;

use cumem_sim::Sim;
use cumem_sys::Driver;

/// A driver, and what it exports.
#[derive(Debug)]
pub struct Target {
    driver: Driver,
    exports: Exports,
}

#[derive(Debug)]
enum Exports {
    Sim(Sim),
    Library(*mut c_void),
}

// SAFETY: the handle of a library that is never closed may be used from any thread.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    /// The driver that a word names: `real`, `sim` (in process), or the path of a library.
    ///
    /// # Errors
    /// Why there is no such driver.
    pub fn named(name: &str) -> Result<Self, String> {
        match name {
            "sim" => {
                let sim = Sim::builder().devices(2).build();
                let driver = sim.driver().map_err(|error| error.to_string())?;
                Ok(Self {
                    driver,
                    exports: Exports::Sim(sim),
                })
            }
            "real" => Self::loaded(Driver::load()),
            path => Self::loaded(Driver::load_from(path)),
        }
    }

    fn loaded(driver: Result<Driver, cumem_sys::LoadError>) -> Result<Self, String> {
        let driver = driver.map_err(|error| error.to_string())?;
        let path = CString::new(driver.label()).map_err(|error| error.to_string())?;
        // SAFETY: the library is open already; this only finds it again.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return Err(format!("{path:?} can't be opened a second time"));
        }
        Ok(Self {
            driver,
            exports: Exports::Library(handle),
        })
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The simulated driver's own books can be asked, if it is one in process.
    #[must_use]
    pub fn sim(&self) -> Option<&Sim> {
        match &self.exports {
            Exports::Sim(sim) => Some(sim),
            Exports::Library(_) => None,
        }
    }

    pub(crate) fn export(&self, name: &CStr) -> *mut c_void {
        match &self.exports {
            Exports::Sim(sim) => sim.symbol(name),
            // SAFETY: the library is open, and the name is a C string.
            Exports::Library(handle) => unsafe { libc::dlsym(*handle, name.as_ptr()) },
        }
    }
}
