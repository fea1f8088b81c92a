//! Which libraries are tried, and what is made of those that can't be used.

use std::path::Path;

use crate::library::{Candidate, Library};
use crate::load_error::{Attempt, DRIVER_PATH_VARIABLE, LoadError};

/// Which libraries to try.
pub(crate) struct Search {
    pub(crate) candidates: Vec<Candidate>,
    named: Option<Named>,
}

/// Who named the one library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Program,
    Environment,
}

impl Search {
    #[cfg_attr(
        feature = "linked",
        allow(dead_code, reason = "the linker has found it")
    )]
    pub(crate) fn from_environment() -> Self {
        match std::env::var_os(DRIVER_PATH_VARIABLE) {
            Some(path) if !path.is_empty() => Self {
                candidates: vec![Candidate::named(path.as_ref())],
                named: Some(Named::Environment),
            },
            _ => Self {
                candidates: Candidate::defaults(),
                named: None,
            },
        }
    }

    pub(crate) fn named(path: &Path) -> Self {
        Self {
            candidates: vec![Candidate::named(path)],
            named: Some(Named::Program),
        }
    }

    /// Whether the environment variable chose the library.
    pub(crate) fn is_from_environment(&self) -> bool {
        self.named == Some(Named::Environment)
    }

    /// What `then` makes of the first library that opens and is no stub.
    pub(crate) fn first<T>(
        &self,
        mut then: impl FnMut(Library) -> Result<T, LoadError>,
    ) -> Result<T, LoadError> {
        let mut attempts: Vec<Attempt> = Vec::new();
        for candidate in &self.candidates {
            match candidate.open().map(&mut then) {
                Ok(Err(LoadError::Stub { attempts: stub, .. })) => attempts.extend(stub),
                Ok(result) => return result,
                Err(attempt) => attempts.push(attempt),
            }
        }
        Err(self.failure(attempts))
    }

    /// The error when nothing of what was tried can be used.
    pub(crate) fn failure(&self, mut attempts: Vec<Attempt>) -> LoadError {
        if let Some(stub) = attempts.iter().find(|attempt| attempt.is_stub()) {
            return LoadError::Stub {
                library: stub.candidate().to_owned(),
                attempts,
            };
        }
        match (self.named, attempts.pop()) {
            (Some(named), Some(attempt)) => LoadError::CannotOpen {
                attempt,
                from_environment: named == Named::Environment,
            },
            (_, last) => {
                attempts.extend(last);
                LoadError::NotFound { attempts }
            }
        }
    }
}
