//! Bodies on their way: up to the upstream, and down to the client.

mod download;
mod upload;

pub(crate) use download::{Download, DownloadError};
pub(super) use upload::Passage;
pub(crate) use upload::{Upload, UploadError};
