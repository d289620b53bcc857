//! The crate a-tree behind a C interface, for benchmarks/a_tree.py.
//!
//! Expressions come as text, one per line, and have the numbers of their lines from 1 on. Events are rows of
//! whole numbers, of which `MISSING` says that there is none. They are made before anything is timed, and an
//! answer is what it adds up to, so that nothing but the search is in a search's time.

use a_tree::{ATree, AttributeDefinition, Event};
use std::ffi::{c_char, CStr};

const MISSING: i64 = i64::MIN;

pub struct Peer {
    tree: ATree<u64>,
    events: Vec<Event>,
}

fn text<'a>(pointer: *const c_char) -> &'a str {
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap_or("")
}

/// A tree over the names of attributes and over expressions, each on a line; null when one is refused.
#[no_mangle]
pub extern "C" fn atree_build(names: *const c_char, expressions: *const c_char) -> *mut Peer {
    let definitions: Vec<_> = text(names).lines().map(AttributeDefinition::integer).collect();
    let Ok(mut tree) = ATree::new(&definitions) else {
        return std::ptr::null_mut();
    };
    for (i, expression) in text(expressions).lines().enumerate() {
        if tree.insert(&(i as u64 + 1), expression).is_err() {
            return std::ptr::null_mut();
        }
    }
    let events = Vec::new();
    Box::into_raw(Box::new(Peer { tree, events }))
}

/// Make the events of later searches: n rows of as many values as there are names; false if one is refused.
#[no_mangle]
pub extern "C" fn atree_events(peer: *mut Peer, names: *const c_char, n: u64, values: *const i64) -> bool {
    let peer = unsafe { &mut *peer };
    let names: Vec<&str> = text(names).lines().collect();
    let values = unsafe { std::slice::from_raw_parts(values, n as usize * names.len()) };
    peer.events.clear();
    for row in values.chunks_exact(names.len()) {
        let mut builder = peer.tree.make_event();
        for (name, &value) in names.iter().zip(row) {
            let put = if value == MISSING {
                builder.with_undefined(name)
            } else {
                builder.with_integer(name, value)
            };
            if put.is_err() {
                return false;
            }
        }
        match builder.build() {
            Ok(event) => peer.events.push(event),
            Err(_) => return false,
        }
    }
    true
}

/// Search all events; the number of pairs, and into `sum` the sum of their numbers times one more than the event's.
#[no_mangle]
pub extern "C" fn atree_search(peer: *const Peer, sum: *mut u64) -> u64 {
    let peer = unsafe { &*peer };
    let (mut pairs, mut total) = (0u64, 0u64);
    for (at, event) in peer.events.iter().enumerate() {
        if let Ok(report) = peer.tree.search(event) {
            pairs += report.matches().len() as u64;
            for id in report.matches() {
                total = total.wrapping_add(**id * (at as u64 + 1));
            }
        }
    }
    unsafe { *sum = total };
    pairs
}

/// Free a tree.
#[no_mangle]
pub extern "C" fn atree_free(peer: *mut Peer) {
    drop(unsafe { Box::from_raw(peer) });
}
