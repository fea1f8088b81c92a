//! The bounded list of an application's backends, alone in its process.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use cumem::{
    Backend, DriverBackend, ErrorKind, MAX_REGISTERED_BACKENDS, Pinned, buckets_for,
    register_backend,
};

type Tiny = Backend<Pinned, { buckets_for(1) }>;

#[test]
fn threads_fill_the_list_and_one_more_is_an_error() {
    let backends: Vec<&'static dyn DriverBackend> = (0..MAX_REGISTERED_BACKENDS)
        .map(|_| Box::leak(Box::new(Tiny::with_capacity(1))) as &'static dyn DriverBackend)
        .collect();
    std::thread::scope(|scope| {
        for part in backends.chunks(16) {
            scope.spawn(move || part.iter().for_each(|&one| register_backend(one).unwrap()));
        }
    });
    let one_more = Box::leak(Box::new(Tiny::with_capacity(1)));
    let error = register_backend(one_more).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooManyBackends);
    // One that is registered already is no news.
    register_backend(backends[MAX_REGISTERED_BACKENDS - 1]).unwrap();
}
