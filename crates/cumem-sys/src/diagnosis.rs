//! Everything there is to know about finding the driver on this machine.

use core::ffi::{c_int, c_void};
use core::fmt;
use std::ffi::CString;
use std::path::PathBuf;

use crate::examined::Examined;
use crate::library::{Library, file_at};
use crate::load_error::{Attempt, DRIVER_PATH_VARIABLE, LoadError};
use crate::search::Search;
use crate::table::{Source, Symbol, Table};
use crate::version::Version;

/// Looks for the driver as [`Driver::load`](crate::Driver::load) does, and tells the whole story.
///
/// Short for `Diagnose::new().run()`. It calls `cuInit`; [`Diagnose`] can do without.
#[must_use]
pub fn diagnose() -> Diagnosis {
    Diagnose::new().run()
}

/// How to look for the driver.
///
/// ```
/// // What is there, without a call that a later fork would suffer from.
/// let diagnosis = cumem_sys::Diagnose::new().without_init().run();
/// println!("{diagnosis}");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Diagnose {
    path: Option<PathBuf>,
    without_init: bool,
}

impl Diagnose {
    /// As [`Driver::load`](crate::Driver::load) does.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Driver::load_from`](crate::Driver::load_from) does.
    #[must_use]
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Does not call `cuInit`: no device is woken, and a process that forks later can still use CUDA
    /// in the child. The library is opened, and `cuDriverGetVersion` and `cuGetProcAddress_v2` are
    /// called, which work without.
    #[must_use]
    pub fn without_init(mut self) -> Self {
        self.without_init = true;
        self
    }

    /// Looks.
    #[must_use]
    pub fn run(&self) -> Diagnosis {
        let search = match &self.path {
            Some(path) => Search::named(path),
            None => Search::from_environment(),
        };
        let mut diagnosis = Diagnosis {
            from_environment: search.is_from_environment(),
            attempts: Vec::new(),
            untried: Vec::new(),
            library: None,
            version: None,
            symbols: Vec::new(),
            outcome: Ok(Reached::Symbols),
        };
        if cfg!(feature = "linked") && self.path.is_none() {
            diagnosis.look_at_linked(self.without_init);
            return diagnosis;
        }
        for candidate in &search.candidates {
            if diagnosis.library.is_some() {
                diagnosis.untried.push(candidate.describe());
                continue;
            }
            match candidate.open() {
                Err(attempt) => diagnosis.attempts.push(attempt),
                Ok(library) => diagnosis.look_at(library, self.without_init),
            }
        }
        if diagnosis.library.is_none() {
            diagnosis.outcome = Err(search.failure(diagnosis.attempts.clone()));
        }
        diagnosis
    }
}

/// How far a driver was brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    /// Its symbols were looked up.
    Symbols,
    /// `cuInit` succeeded.
    Init,
}

/// What [`diagnose`] found. Its `Display` is made for people, and may change.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    from_environment: bool,
    attempts: Vec<Attempt>,
    untried: Vec<String>,
    library: Option<String>,
    version: Option<i32>,
    symbols: Vec<SymbolReport>,
    outcome: Result<Reached, LoadError>,
}

/// One entry point of a [`Diagnosis`].
#[derive(Clone, Debug)]
pub struct SymbolReport {
    symbol: &'static Symbol,
    address: usize,
    source: Option<Source>,
    file: Option<String>,
    driver_says: Option<&'static str>,
}

impl SymbolReport {
    /// The entry point.
    #[must_use]
    pub fn symbol(&self) -> &'static Symbol {
        self.symbol
    }

    /// How it was found; `None` if the driver lacks it.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        self.source
    }

    /// Its address, as a number: 0 if the driver lacks it.
    #[must_use]
    pub fn address(&self) -> usize {
        self.address
    }

    /// The file that holds it, where the loader can tell.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// What `cuGetProcAddress_v2` says when asked for the C name at the version that this form
    /// appeared in: the `same` address or `another`, `later` if it has it only for later versions,
    /// `too new` if the driver itself is of an earlier version, else `unknown`. `None` where the
    /// driver lacks that call.
    #[must_use]
    pub fn driver_says(&self) -> Option<&'static str> {
        self.driver_says
    }
}

impl SymbolReport {
    /// One line, without what is the same for all symbols of `library`.
    fn line(&self, library: Option<&str>) -> String {
        let since = Version(self.symbol.since().cast_signed()).to_string();
        let need = if self.symbol.is_required() {
            "required"
        } else {
            "optional"
        };
        let found = match self.source {
            Some(Source::Export) => "exported",
            Some(Source::ProcAddress) => "cuGetProcAddress",
            Some(Source::Linked) => "linked",
            None if self.symbol.is_required() => "MISSING",
            None => "absent",
        };
        let file = match self.file() {
            file if file == library => "",
            file => file.unwrap_or_default(),
        };
        let line = format!(
            "{:38} {since:>5}  {need:8}  {found:16}  {:10}  {file}",
            self.symbol.name(),
            self.driver_says.unwrap_or("-"),
        );
        line.trim_end().to_owned()
    }
}

impl Diagnosis {
    /// Each candidate that was tried and not used, and what the loader said.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// The library's file that was found, if one was: usable or not, but no stub.
    #[must_use]
    pub fn library(&self) -> Option<&str> {
        self.library.as_deref()
    }

    /// Whether a stub library was met on the way, or is all that there is.
    #[must_use]
    pub fn met_stub(&self) -> bool {
        self.attempts.iter().any(Attempt::is_stub)
    }

    /// The version of the driver API, as the driver counts, if it said.
    #[must_use]
    pub fn driver_version(&self) -> Option<i32> {
        self.version
    }

    /// Every entry point that this crate binds; empty if no library was found.
    #[must_use]
    pub fn symbols(&self) -> &[SymbolReport] {
        &self.symbols
    }

    /// Whether `cuInit` was called and succeeded.
    #[must_use]
    pub fn is_initialised(&self) -> bool {
        matches!(self.outcome, Ok(Reached::Init))
    }

    /// The error that [`Driver::load`](crate::Driver::load) gives here, as far as this looked.
    #[must_use]
    pub fn error(&self) -> Option<&LoadError> {
        self.outcome.as_ref().err()
    }

    #[cfg(feature = "linked")]
    fn look_at_linked(&mut self, without_init: bool) {
        let library = Library::linked();
        self.look_at_table(Table::linked(&library), library.file, without_init);
    }

    #[cfg(not(feature = "linked"))]
    fn look_at_linked(&mut self, _without_init: bool) {}

    fn look_at(&mut self, library: Library, without_init: bool) {
        // SAFETY: as in `Examined::of`.
        let table = unsafe { Table::resolve(&library) };
        self.look_at_table(table, library.file, without_init);
    }

    fn look_at_table(&mut self, mut table: Table, file: String, without_init: bool) {
        let mut version: c_int = 0;
        // SAFETY: the call writes one integer, and is allowed before `cuInit`.
        if unsafe { table.cuDriverGetVersion(&mut version) }.is_ok() {
            self.version = Some(version);
            table.set_version(version);
        }
        let symbols = report(&table);
        self.outcome = match Examined::new(table, file.clone()) {
            Err(LoadError::Stub { attempts, .. }) => {
                self.attempts.extend(attempts);
                return;
            }
            Err(error) => Err(error),
            Ok(_) if without_init => Ok(Reached::Symbols),
            Ok(examined) => examined.init().map(|_| Reached::Init),
        };
        self.symbols = symbols;
        self.library = Some(file);
    }
}

fn report(table: &Table) -> Vec<SymbolReport> {
    table
        .resolved()
        .into_iter()
        .map(|(symbol, found)| {
            let address = found.map_or(core::ptr::null(), |(address, _)| address);
            SymbolReport {
                symbol,
                address: address as usize,
                source: found.map(|(_, source)| source),
                file: file_at(address),
                driver_says: ask(table, symbol, address),
            }
        })
        .collect()
}

/// What the driver's own look-up says of a symbol.
fn ask(table: &Table, symbol: &Symbol, address: *const c_void) -> Option<&'static str> {
    use crate::bindings::CUdriverProcAddressQueryResult as Status;
    let name = CString::new(symbol.c_name()).ok()?;
    let mut found = core::ptr::null_mut();
    let mut status = Status::CU_GET_PROC_ADDRESS_SUCCESS;
    let version = symbol.since().cast_signed();
    // SAFETY: the call reads the C string, and writes one pointer and one status.
    let answer =
        unsafe { table.cuGetProcAddress_v2(name.as_ptr(), &mut found, version, 0, &mut status) };
    Some(match answer {
        Err(error) if error.missing_symbol().is_some() => return None,
        Ok(()) if !found.is_null() && found.cast_const() == address => "same",
        Ok(()) if !found.is_null() => "another",
        _ if status == Status::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT => "later",
        // A version above the driver's own is an invalid value.
        Err(_) if table.version() < version => "too new",
        _ => "unknown",
    })
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from_environment {
            writeln!(f, "{DRIVER_PATH_VARIABLE} names the library")?;
        }
        for attempt in &self.attempts {
            writeln!(f, "tried      {attempt}")?;
        }
        match &self.library {
            Some(library) => writeln!(f, "found      {library}")?,
            None => writeln!(f, "found      nothing")?,
        }
        for candidate in &self.untried {
            writeln!(f, "not tried  {candidate}")?;
        }
        if let Some(version) = self.version {
            writeln!(f, "version    CUDA {}", Version(version))?;
        }
        match &self.outcome {
            Ok(Reached::Symbols) => writeln!(f, "cuInit     not called")?,
            Ok(Reached::Init) => writeln!(f, "cuInit     succeeded")?,
            // What was tried stands above; the error's further lines would repeat it.
            Err(error) => {
                let error = error.to_string();
                let first = error.lines().next().unwrap_or_default();
                writeln!(f, "unusable   {}", first.trim_end_matches(" Tried:"))?;
            }
        }
        if self.symbols.is_empty() {
            return Ok(());
        }
        let absent = self
            .symbols
            .iter()
            .filter(|report| report.source.is_none())
            .count();
        writeln!(
            f,
            "symbols    {} bound, {absent} absent\n",
            self.symbols.len() - absent
        )?;
        writeln!(
            f,
            "{:38} {:>5}  {:8}  {:16}  {:10}  file, if another",
            "symbol", "since", "need", "found", "look-up"
        )?;
        for report in &self.symbols {
            writeln!(f, "{}", report.line(self.library()))?;
        }
        Ok(())
    }
}
