//! One behaviour, and what came of checking it.

use cumem_sys::{CUresult, CuError};

use crate::ground::Ground;

/// Where a behaviour may be checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// In a process with others.
    Shared,
    /// In a process of its own.
    Alone,
    /// In a process of its own, which must die of a memory fault.
    Dies,
}

/// One thing that a driver does.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// Its name: area and statement.
    pub name: &'static str,
    /// What the driver does, in words.
    pub statement: &'static str,
    /// Where it may be checked.
    pub setting: Setting,
    pub(crate) check: fn(&Ground<'_>) -> Check,
}

/// What came of checking a behaviour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The driver does it.
    Held,
    /// The driver does something else, which is said.
    Failed(String),
    /// It can't be checked here, and why.
    Skipped(String),
}

/// Why a check ended before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    Failed(String),
    Skipped(String),
}

pub(crate) type Check<T = ()> = Result<T, Stop>;

impl From<CuError> for Stop {
    fn from(error: CuError) -> Self {
        if let Some(symbol) = error.missing_symbol() {
            return Self::Skipped(format!("the driver lacks {}", symbol.name()));
        }
        Self::Failed(format!(
            "{} answered {}",
            error.call(),
            code_name(error.code())
        ))
    }
}

pub(crate) fn code_name(code: CUresult) -> String {
    format!("{}", code.0)
}

pub(crate) fn fail<T>(text: impl Into<String>) -> Check<T> {
    Err(Stop::Failed(text.into()))
}

pub(crate) fn skip<T>(text: impl Into<String>) -> Check<T> {
    Err(Stop::Skipped(text.into()))
}

/// The call was refused with that code.
pub(crate) fn refused<T>(result: Result<T, CuError>, code: CUresult) -> Check {
    match result {
        Ok(_) => fail(format!("answered 0, not {}", code.0)),
        Err(error) if error.missing_symbol().is_some() => Err(error.into()),
        Err(error) if error.code() == code => Ok(()),
        Err(error) => fail(format!(
            "{} answered {}, not {}",
            error.call(),
            error.code().0,
            code.0
        )),
    }
}

/// Two values are the same.
#[track_caller]
pub(crate) fn same<T: PartialEq + core::fmt::Debug>(found: T, expected: T) -> Check {
    if found == expected {
        return Ok(());
    }
    let line = core::panic::Location::caller().line();
    fail(format!("line {line}: found {found:?}, not {expected:?}"))
}

/// A condition holds.
pub(crate) fn holds(condition: bool, text: &str) -> Check {
    if condition { Ok(()) } else { fail(text) }
}

/// Defines checks, and the list of them for an area.
macro_rules! behaviours {
    (
        area $area:literal;
        $(
            #[doc = $statement:literal]
            $setting:ident fn $name:ident($ground:ident) $body:block
        )*
    ) => {
        pub(super) const ALL: &[$crate::Behaviour] = &[$(
            $crate::Behaviour {
                name: concat!($area, ".", stringify!($name)),
                statement: $statement.trim_ascii(),
                setting: behaviours!(@setting $setting),
                check: $name,
            },
        )*];

        $(
            #[doc = $statement]
            fn $name($ground: &$crate::ground::Ground<'_>) -> $crate::behaviour::Check {
                let _ = $ground;
                $body
                Ok(())
            }
        )*
    };
    (@setting shared) => { $crate::Setting::Shared };
    (@setting alone) => { $crate::Setting::Alone };
    (@setting dies) => { $crate::Setting::Dies };
}

/// Calls an unsafe method of the driver.
macro_rules! call {
    ($driver:ident . $method:ident ( $($argument:expr),* $(,)? )) => {{
        // SAFETY: the suite passes handles that the driver gave out, and memory that it owns for as
        // long as the call may use it. Where it passes anything else on purpose, it is a number
        // that the driver looks up before following it, in a process that may die of it if the
        // driver doesn't.
        unsafe { $driver.$method($($argument),*) }
    }};
}

pub(crate) use {behaviours, call};
