//! A loaded, initialised driver.

mod context;
mod copy;
mod device;
mod event;
mod kernel;
mod memory;
mod pointer;
mod pool;
mod stream;
mod virtual_memory;

use core::any::Any;
use core::ffi::{CStr, c_int, c_void};
use core::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::bindings::CUresult;
use crate::error::CuError;
use crate::fork;
use crate::load::{
    Attempt, Candidate, DRIVER_PATH_VARIABLE, Library, LoadError, OLDEST_DRIVER, Version,
};
use crate::table::{SYMBOLS, Symbol, Table};

/// A CUDA driver: its library found, its entry points resolved by their exact names, and `cuInit`
/// done.
///
/// A cheap handle: cloning counts a reference. `Send` and `Sync`, as the driver itself is. Several
/// drivers can live in one process; a library, once loaded, is never unloaded.
///
/// Every entry point is a method, named after the C function without `cu` and without its version
/// suffix: `cuMemFree_v2` is [`mem_free`](Self::mem_free). Out parameters are the return value. A
/// method that could break memory safety, or another part of the program, is `unsafe`, and says
/// what it asks. The sections named in the methods' documentation are those of NVIDIA's *CUDA
/// Driver API* manual.
#[derive(Clone)]
pub struct Driver {
    shared: Arc<Shared>,
}

struct Shared {
    table: Table,
    label: String,
    version: i32,
    /// What must outlive the entry points, for a driver that is part of the program.
    _keep_alive: Option<Arc<dyn Any + Send + Sync>>,
}

impl Driver {
    /// Finds, loads and initialises the driver.
    ///
    /// The environment variable `CUMEM_DRIVER_PATH`, when set, names the one library to use.
    /// Otherwise: on Linux `libcuda.so.1` if the process has it open already, `libcuda.so.1` on the
    /// loader's path, the one in WSL's folder, `libcuda.so`; on Windows `nvcuda.dll`. A stub library
    /// is passed over.
    ///
    /// Loading again is cheap and harmless; [`global`](Self::global) does it once for the process.
    ///
    /// # Errors
    /// [`LoadError`] says what was tried, what is wrong, and what to do.
    pub fn load() -> Result<Self, LoadError> {
        cfg_if::cfg_if! {
            if #[cfg(feature = "linked")] {
                Self::linked()
            } else {
                match std::env::var_os(DRIVER_PATH_VARIABLE) {
                    Some(path) if !path.is_empty() => Self::load_from(path),
                    _ => Self::load_first(&Candidate::defaults()),
                }
            }
        }
    }

    /// Loads and initialises the driver in the library at `path`, and no other.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn load_from(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        Self::load_first(&[Candidate::at(path.as_ref())])
    }

    /// The process-wide driver, loaded by the first call; concurrent first calls wait for one
    /// loading. Its failure is kept too: a process that had no driver has none until it ends.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn global() -> Result<&'static Self, &'static LoadError> {
        static GLOBAL: OnceLock<Result<Driver, LoadError>> = OnceLock::new();
        GLOBAL.get_or_init(Self::load).as_ref()
    }

    /// A driver whose entry points the program itself provides, such as a simulated one.
    ///
    /// `resolve` finds an entry point by its exact exported name, or answers null. `keep_alive` is
    /// held until the last clone of the driver is gone.
    ///
    /// # Errors
    /// As for [`load`](Self::load); `label` stands where the library's file would.
    ///
    /// # Safety
    /// What `resolve` finds under a name is a function with the signature that [`bindings`] declares
    /// for it, which does what NVIDIA's manual says of it, and which may be called while
    /// `keep_alive` is held.
    ///
    /// [`bindings`]: crate::bindings
    pub unsafe fn from_symbols(
        label: &str,
        keep_alive: Arc<dyn Any + Send + Sync>,
        resolve: &dyn Fn(&CStr) -> *mut c_void,
    ) -> Result<Self, LoadError> {
        // SAFETY: the caller's promise.
        let table = unsafe { Table::resolve(resolve) };
        Self::initialise(table, label.to_owned(), Some(keep_alive))
    }

    fn load_first(candidates: &[Candidate]) -> Result<Self, LoadError> {
        let mut attempts: Vec<Attempt> = Vec::new();
        for candidate in candidates {
            match candidate.open().map(Self::from_library) {
                Ok(Err(LoadError::Stub { attempts: stub, .. })) => attempts.extend(stub),
                Ok(result) => return result,
                Err(attempt) => attempts.push(attempt),
            }
        }
        match attempts.iter().find(|attempt| attempt.stub) {
            Some(stub) => Err(LoadError::Stub {
                library: stub.candidate.clone(),
                attempts,
            }),
            None => Err(LoadError::NotFound { attempts }),
        }
    }

    fn from_library(library: Library) -> Result<Self, LoadError> {
        // SAFETY: the library exports the driver's functions under the driver's names, or it is
        // none of the files that the loader's path, or the user, says is the CUDA driver.
        let table = unsafe { Table::resolve(&|name| library.symbol(name)) };
        Self::initialise(table, library.keep(), None)
    }

    #[cfg(feature = "linked")]
    fn linked() -> Result<Self, LoadError> {
        Self::initialise(Ok(Table::linked()), "the linked library".to_owned(), None)
    }

    fn initialise(
        table: Result<Table, &'static Symbol>,
        library: String,
        keep_alive: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Self, LoadError> {
        let table = match table {
            Ok(table) => table,
            Err(symbol) => return Err(LoadError::MissingSymbol { library, symbol }),
        };
        let mut version: c_int = 0;
        // SAFETY: the call writes one integer, and is allowed before `cuInit`.
        let versioned = unsafe { table.cuDriverGetVersion(&mut version) };
        // SAFETY: any thread may initialise the driver, any number of times; flags must be 0.
        if let Err(error) = unsafe { table.cuInit(0) } {
            let version = versioned.is_ok().then_some(version);
            return Err(LoadError::from_init(library, version, error));
        }
        if version < OLDEST_DRIVER {
            return Err(LoadError::TooOld { library, version });
        }
        fork::watch();
        Ok(Self {
            shared: Arc::new(Shared {
                table,
                label: library,
                version,
                _keep_alive: keep_alive,
            }),
        })
    }

    #[inline]
    fn table(&self) -> &Table {
        &self.shared.table
    }

    /// The library's file, or the label that the program gave.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.shared.label
    }

    /// The version of the driver API, as the driver counts: 13000 is 13.0.
    #[must_use]
    pub fn driver_version(&self) -> i32 {
        self.shared.version
    }

    /// Whether this process was forked from one in which a driver had been initialised: then every
    /// call fails, and memory of the parent is the parent's to release.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        fork::in_forked_child()
    }

    /// Every entry point that this crate knows, with the address it has in this driver, if any.
    pub fn symbols(&self) -> impl Iterator<Item = (&'static Symbol, Option<*const c_void>)> {
        SYMBOLS
            .iter()
            .map(|symbol| (*symbol, self.table().address_of(symbol)))
    }

    /// The driver's own name for a code: the newest driver knows codes that this crate doesn't.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the driver doesn't know the code either. (*Error Handling*)
    pub fn get_error_name(&self, code: CUresult) -> Result<&CStr, CuError> {
        let mut text = core::ptr::null();
        // SAFETY: the call writes one pointer.
        unsafe { self.table().cuGetErrorName(code, &mut text) }?;
        // SAFETY: on success it is a C string in the driver's own constants, which are never
        // unloaded while a driver lives.
        Ok(unsafe { CStr::from_ptr(text) })
    }

    /// The driver's own description of a code.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the driver doesn't know the code. (*Error Handling*)
    pub fn get_error_string(&self, code: CUresult) -> Result<&CStr, CuError> {
        let mut text = core::ptr::null();
        // SAFETY: the call writes one pointer.
        unsafe { self.table().cuGetErrorString(code, &mut text) }?;
        // SAFETY: as in `get_error_name`.
        Ok(unsafe { CStr::from_ptr(text) })
    }

    /// The entry point that a function has in the API of `version` (13000 is 13.0), with the
    /// driver's status. Null if there is none: the call can succeed without one.
    ///
    /// The version chooses the ABI: `cuMemAdvise` asked for at 12020 and later is the form with a
    /// location. Ask for the version whose declaration you call, never for the driver's own.
    ///
    /// # Errors
    /// The driver's answer. (*Driver Entry Point Access*)
    pub fn get_proc_address(
        &self,
        name: &CStr,
        version: i32,
    ) -> Result<(*mut c_void, crate::bindings::CUdriverProcAddressQueryResult), CuError> {
        use crate::bindings::CUdriverProcAddressQueryResult as Status;
        let mut found = core::ptr::null_mut();
        let mut status = Status::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        let table = self.table();
        // SAFETY: the call reads the C string, and writes one pointer and one status.
        unsafe { table.cuGetProcAddress_v2(name.as_ptr(), &mut found, version, 0, &mut status) }?;
        Ok((found, status))
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Driver({}, CUDA {})",
            self.label(),
            Version(self.driver_version())
        )
    }
}
