//! The dynamic loader: what it is asked for, and what it opens.

use core::error::Error;
use core::ffi::{CStr, c_void};
use core::mem::ManuallyDrop;
use core::ptr;
use std::path::{Path, PathBuf};

use crate::load_error::Attempt;
use crate::table::{Resolve, Symbol};

cfg_if::cfg_if! {
    if #[cfg(windows)] {
        use libloading::os::windows as os;
    } else {
        use libloading::os::unix as os;
    }
}

/// One thing to ask the dynamic loader for.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    name: PathBuf,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// A library that somebody named.
    Named,
    /// One that the process has open already.
    AlreadyLoaded,
    /// By the system's rules.
    Searched,
}

impl Candidate {
    pub(crate) fn named(path: &Path) -> Self {
        Self {
            name: path.to_path_buf(),
            how: How::Named,
        }
    }

    /// What is tried when nobody named a library, in order.
    pub(crate) fn defaults() -> Vec<Self> {
        cfg_if::cfg_if! {
            if #[cfg(windows)] {
                let names = [
                    ("nvcuda.dll", How::AlreadyLoaded),
                    ("nvcuda.dll", How::Searched),
                ];
            } else {
                // WSL keeps the library outside the loader's path, and has no bare libcuda.so; a
                // bare libcuda.so elsewhere is most often the toolkit's stub, so it comes last.
                let names = [
                    ("libcuda.so.1", How::AlreadyLoaded),
                    ("libcuda.so.1", How::Searched),
                    ("/usr/lib/wsl/lib/libcuda.so.1", How::Searched),
                    ("libcuda.so", How::Searched),
                ];
            }
        }
        names
            .into_iter()
            .map(|(name, how)| Self {
                name: name.into(),
                how,
            })
            .collect()
    }

    pub(crate) fn describe(&self) -> String {
        let name = self.name.display();
        match self.how {
            How::AlreadyLoaded => format!("{name}, if already loaded"),
            How::Named | How::Searched => name.to_string(),
        }
    }

    /// Asks the loader. What it opens is never closed: other parts of the process may be using it,
    /// and the driver does not survive being unloaded.
    pub(crate) fn open(&self) -> Result<Library, Attempt> {
        let failed = |message| Attempt::failed(self.describe(), message);
        if self.how == How::Named {
            refuse_what_is_no_file(&self.name).map_err(failed)?;
        }
        let handle = self
            .open_handle()
            .map_err(|error| failed(self.message(&error)))?;
        let file = file_of(&handle).unwrap_or_else(|| self.name.display().to_string());
        Ok(Library {
            file,
            handle: ManuallyDrop::new(Some(handle)),
        })
    }

    /// The loader's own words, without what libloading puts around them.
    fn message(&self, error: &libloading::Error) -> String {
        if self.how == How::AlreadyLoaded {
            // The loader has no words for a library that is there but not loaded, and misleading ones
            // for one that isn't there.
            return "not loaded".to_owned();
        }
        let mut deepest: &dyn Error = error;
        while let Some(source) = deepest.source() {
            deepest = source;
        }
        deepest.to_string()
    }

    cfg_if::cfg_if! {
        if #[cfg(windows)] {
            fn open_handle(&self) -> Result<os::Library, libloading::Error> {
                match self.how {
                    How::AlreadyLoaded => os::Library::open_already_loaded(&self.name),
                    // SAFETY: the initialisers are those of the file that the user named.
                    How::Named => unsafe { os::Library::new(&self.name) },
                    // The driver is installed in the system's folder, and a file of that name beside
                    // the program or in the current folder is not it.
                    // SAFETY: the initialisers are NVIDIA's, which may run on any thread.
                    How::Searched => unsafe {
                        os::Library::load_with_flags(&self.name, os::LOAD_LIBRARY_SEARCH_SYSTEM32)
                    },
                }
            }
        } else {
            fn open_handle(&self) -> Result<os::Library, libloading::Error> {
                let only_loaded = match self.how {
                    How::AlreadyLoaded => libc::RTLD_NOLOAD,
                    How::Named | How::Searched => 0,
                };
                let flags = os::RTLD_NOW | os::RTLD_LOCAL | only_loaded;
                // SAFETY: the initialisers are NVIDIA's, or those of the file that the user named;
                // they may run on any thread.
                unsafe { os::Library::open(Some(&self.name), flags) }
            }
        }
    }
}

/// The loader would take an empty name for the program itself, and wait for ever to open a pipe that
/// nobody writes to.
fn refuse_what_is_no_file(path: &Path) -> Result<(), String> {
    if path.as_os_str().is_empty() {
        return Err("an empty path names no library".to_owned());
    }
    // A bare name is the loader's to search for, not a file of the current folder.
    if path.components().count() < 2 {
        return Ok(());
    }
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => Err("not a regular file".to_owned()),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// An opened library, which is never closed.
pub(crate) struct Library {
    /// The file, as far as the loader tells; else what was asked for.
    pub(crate) file: String,
    handle: ManuallyDrop<Option<os::Library>>,
}

impl Library {
    /// What the linker bound. Symbols are looked up in the whole process, or on Windows in the one
    /// library that it can be.
    #[cfg(feature = "linked")]
    pub(crate) fn linked() -> Self {
        cfg_if::cfg_if! {
            if #[cfg(windows)] {
                let handle = os::Library::open_already_loaded("nvcuda.dll").ok();
            } else {
                let handle = Some(os::Library::this());
            }
        }
        let address = crate::bindings::cuInit as *const c_void;
        Self {
            file: file_at(address).unwrap_or_else(|| "the linked library".to_owned()),
            handle: ManuallyDrop::new(handle),
        }
    }
}

impl Resolve for Library {
    fn exported(&self, symbol: &Symbol) -> *mut c_void {
        match &*self.handle {
            Some(handle) => address(handle, symbol.exported_name()),
            None => ptr::null_mut(),
        }
    }
}

fn address(library: &os::Library, name: &CStr) -> *mut c_void {
    // SAFETY: the symbol is only looked up. The address is called with the signature of the table,
    // which is checked against the header's declaration.
    unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) }
        .map_or(ptr::null_mut(), os::Symbol::as_raw_ptr)
}

/// The file that a library was loaded from: the one that holds its `cuInit`.
fn file_of(library: &os::Library) -> Option<String> {
    file_at(address(library, c"cuInit"))
}

cfg_if::cfg_if! {
    if #[cfg(windows)] {
        /// The file that holds the code at an address. Not asked for on Windows, where the driver has
        /// one place.
        pub(crate) fn file_at(_: *const c_void) -> Option<String> {
            None
        }
    } else {
        /// The file that holds the code at an address, as the dynamic loader knows it.
        pub(crate) fn file_at(address: *const c_void) -> Option<String> {
            if address.is_null() {
                return None;
            }
            let mut info = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
            // SAFETY: `dladdr` reads the address as a number and fills `info` when it answers other
            // than 0.
            if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
                return None;
            }
            // SAFETY: it answered other than 0.
            let name = unsafe { info.assume_init() }.dli_fname;
            if name.is_null() {
                return None;
            }
            // SAFETY: a file name of `dladdr` is a C string that lives as long as its library is
            // open; it is copied at once, by a caller that holds the address in a library that it
            // never closes.
            let name = unsafe { CStr::from_ptr(name) };
            Some(name.to_string_lossy().into_owned())
        }
    }
}
