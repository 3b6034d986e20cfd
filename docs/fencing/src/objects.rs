//! Objects in S3, GCS, Azure or memory: the token is the first line of the object, and a conditional put makes compare and write one step.

use fairlock::FencingToken;
use object_store::path::Path;
use object_store::{Error, ObjectStore, PutMode, Result, UpdateVersion};

use crate::Fence;

/// Writes the object, unless a newer hold has written it.
pub async fn put(store: &dyn ObjectStore, path: &Path, token: FencingToken, text: &str) -> Result<Fence> {
    loop {
        let mode = match store.get(path).await {
            Ok(found) => {
                let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
                if token.get() < newest(&found.bytes().await?)? {
                    return Ok(Fence::Stale);
                }
                PutMode::Update(UpdateVersion { e_tag, version })
            }
            Err(Error::NotFound { .. }) => PutMode::Create,
            Err(error) => return Err(error),
        };
        match store.put_opts(path, format!("{token}\n{text}").into(), mode.into()).await {
            Ok(_) => return Ok(Fence::Passed),
            Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => {} // somebody wrote meanwhile: look again
            Err(error) => return Err(error),
        }
    }
}

/// An object that can't be understood is an error, not a reason to write.
fn newest(object: &[u8]) -> Result<u64> {
    let line = object.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let token = std::str::from_utf8(line).ok().and_then(|line| line.parse().ok());
    token.ok_or_else(|| Error::Generic { store: "fence", source: "the first line is no token".into() })
}
