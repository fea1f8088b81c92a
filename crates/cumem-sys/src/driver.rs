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
use core::ffi::{CStr, c_void};
use core::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::bindings::{CUdriverProcAddressQueryResult, CUresult};
use crate::error::CuError;
use crate::examined::Examined;
use crate::fork;
use crate::global;
#[cfg(feature = "linked")]
use crate::library::Library;
use crate::load_error::LoadError;
use crate::search::Search;
use crate::table::{Resolve, Source, Symbol, Table};
use crate::version::Version;

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
    /// What must outlive the entry points, for a driver that is part of the program.
    _keep_alive: Option<Arc<dyn Any + Send + Sync>>,
}

impl Driver {
    /// Finds, loads and initialises the driver.
    ///
    /// The environment variable `CUMEM_DRIVER_PATH`, when set and not empty, names the one library
    /// to use. Otherwise: on Linux `libcuda.so.1` if the process has it open already, `libcuda.so.1`
    /// on the loader's path, the one in WSL's folder, `libcuda.so`; on Windows `nvcuda.dll` from the
    /// system's folder. A stub library is passed over. With the feature `linked`, the library that
    /// the linker bound, and the variable is not read.
    ///
    /// Loading again is cheap and harmless; [`global`](Self::global) does it once for the process.
    /// Any thread may call it.
    ///
    /// # Errors
    /// [`LoadError`] says what was tried, what is wrong, and what to do.
    pub fn load() -> Result<Self, LoadError> {
        cfg_if::cfg_if! {
            if #[cfg(feature = "linked")] {
                Self::linked()
            } else {
                Self::load_first(&Search::from_environment())
            }
        }
    }

    /// Loads and initialises the driver in the library at `path`, and no other. A name without a
    /// folder is looked for on the loader's path, not in the current folder.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn load_from(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        Self::load_first(&Search::named(path.as_ref()))
    }

    /// The process-wide driver: what [`load`](Self::load) finds in the first call. Concurrent first
    /// calls wait for one loading.
    ///
    /// A failure is kept too, so that asking for a driver that isn't there stays cheap. It does not
    /// stand in the way of [`load_from`](Self::load_from), nor of [`set_global`](Self::set_global).
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    #[inline]
    pub fn global() -> Result<&'static Self, &'static LoadError> {
        global::get()
    }

    /// Makes this the process-wide driver, if there is none yet; also after [`global`](Self::global)
    /// failed.
    ///
    /// # Errors
    /// There is one already, which stays: the driver that was to be set comes back.
    pub fn set_global(self) -> Result<&'static Self, Self> {
        global::set(self)
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
        struct Provided<'a>(&'a dyn Fn(&CStr) -> *mut c_void);

        impl Resolve for Provided<'_> {
            fn exported(&self, symbol: &Symbol) -> *mut c_void {
                self.0(symbol.exported_name())
            }
        }

        // SAFETY: the caller's promise.
        let table = unsafe { Table::resolve(&Provided(resolve)) };
        Self::initialise(Examined::new(table, label.to_owned())?, Some(keep_alive))
    }

    fn load_first(search: &Search) -> Result<Self, LoadError> {
        search.first(|library| Self::initialise(Examined::of(library)?, None))
    }

    #[cfg(feature = "linked")]
    fn linked() -> Result<Self, LoadError> {
        let library = Library::linked();
        let table = Table::linked(&library);
        Self::initialise(Examined::new(table, library.file)?, None)
    }

    fn initialise(
        examined: Examined,
        keep_alive: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Self, LoadError> {
        let Examined { table, library } = examined.init()?;
        Ok(Self {
            shared: Arc::new(Shared {
                table,
                label: library,
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
        self.table().version()
    }

    /// Whether this process was forked from the one that this driver was loaded in: then every call
    /// fails, and memory of the parent is the parent's to release.
    ///
    /// Costs one load and one comparison. Not noticed where `fork` was bypassed (a bare `clone`
    /// system call).
    #[must_use]
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.table().generation() != fork::generation()
    }

    /// Every entry point that this crate knows, with the address that it has in this driver and where
    /// that is from, if it has one.
    pub fn symbols(
        &self,
    ) -> impl Iterator<Item = (&'static Symbol, Option<(*const c_void, Source)>)> + use<> {
        self.table().resolved().into_iter()
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
    ) -> Result<(*mut c_void, CUdriverProcAddressQueryResult), CuError> {
        use CUdriverProcAddressQueryResult as Status;
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
