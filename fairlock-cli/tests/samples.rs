//! The samples in `docs/samples/` run as they stand, but for the server's address and the folder of the programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fairlock_tests::{RedisServer, WorkDir, assert_no_residue, eventually};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgid};
use yaml_rust2::{Yaml, YamlLoader};

use crate::support::{FAIRLOCK, Running, children_hear_signals, lock, process_in, wait_for_queue};

/// What the samples call their server.
const ADDRESSES: [&str; 2] = ["redis://redis.internal:6379", "redis://redis:6379"];

/// A sample, with the longest period: no period ends during a test.
fn sample(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/samples").join(name);
    fs::read_to_string(path).unwrap().replace("--every 10m", "--every 31d")
}

/// A folder of programs, as on a host: fairlock, and scripts. Each script writes its name into the log first.
struct Host {
    dir: WorkDir,
    url: String,
}

impl Host {
    fn new(server: &RedisServer, scripts: &[(&str, &str)]) -> Host {
        let host = Host { dir: WorkDir::new(), url: server.url() };
        fs::create_dir(host.bin()).unwrap();
        std::os::unix::fs::symlink(FAIRLOCK, host.bin().join("fairlock")).unwrap();
        for (name, then) in scripts {
            let program = host.bin().join(name);
            fs::write(&program, format!("#!/bin/sh\necho {name} >> {}\n{then}\n", host.log_file().display()))
                .unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        host
    }

    fn bin(&self) -> PathBuf {
        self.dir.file("bin")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.file("log")
    }

    /// What ran so far.
    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.log_file()).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Starts a program with this environment and no other, but for the server's address.
    fn start(&self, words: &[&str], environment: &[(String, String)]) -> Running {
        children_hear_signals();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env_clear().stdin(Stdio::null());
        for (name, value) in environment {
            let value = if ADDRESSES.contains(&value.as_str()) { &self.url } else { value };
            command.env(name, value);
        }
        let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_str());
        command.env("PATH", format!("{}:{}", self.bin().display(), path.unwrap_or("/usr/bin:/bin")));
        Running::start(command)
    }
}

#[track_caller]
fn assert_ends(commands: Vec<Running>, code: i32) {
    for mut command in commands {
        command.output().gave(code);
    }
}

/// Whether the service's units, the cron jobs and the pods of several hosts did one report, and do none soon after it. Returns what the
/// others said.
fn assert_one_report(host: &Host, run: impl Fn() -> Running, code_of_others: i32) -> String {
    assert_ends(vec![run()], 0);
    let others = [run(), run()].map(|mut other| other.output().gave(code_of_others));
    assert_eq!(host.log(), ["make-report"]);
    others.into_iter().map(|said| said.out + &said.err).collect()
}

#[test]
fn the_crontab_runs_one_report_and_each_host_cleans_up() {
    let server = RedisServer::start();
    let host = Host::new(&server, &[("make-report", ""), ("remove-old", "sleep 0.1"), ("compact", "")]);
    let (mut environment, mut lines) = (Vec::new(), Vec::new());
    for line in sample("crontab").lines().filter(|line| !line.starts_with('#')) {
        // Five fields and a command; or a variable.
        let is_time = |word: &str| word.chars().all(|c| c.is_ascii_digit() || "*/,-".contains(c));
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() > 5 && words[..5].iter().all(|word| is_time(word)) {
            assert!(!line.contains('%'), "cron makes it a new line: {line}");
            lines.push(words[5..].join(" "));
        } else {
            let (name, value) = line.split_once('=').expect(line);
            environment.push((name.to_owned(), value.to_owned()));
        }
    }
    let [report, cleanup] = &lines[..] else { panic!("{lines:?}") };
    let run = |line: &str| host.start(&["/bin/sh", "-c", line], &environment);
    let mailed = assert_one_report(&host, || run(report), 0);
    assert_eq!(mailed, "", "cron mails whatever is said");
    fs::remove_file(host.log_file()).unwrap();
    assert_ends(vec![run(cleanup), run(cleanup)], 0);
    assert_eq!(host.log(), ["remove-old", "compact", "remove-old", "compact"]);
    assert_no_residue(&server, &[]);
}

/// The values of a key in a unit file.
fn unit(text: &str, key: &str) -> Vec<String> {
    let settings = text.lines().filter_map(|line| line.split_once('='));
    settings.filter(|(name, _)| *name == key).map(|(_, value)| value.to_owned()).collect()
}

#[test]
fn the_systemd_service_runs_one_report() {
    let server = RedisServer::start();
    let host = Host::new(&server, &[("make-report", "")]);
    let service = sample("report.service");
    let here = service.replace("/usr/local/bin", host.bin().to_str().unwrap());
    let command = unit(&here, "ExecStart").pop().unwrap();
    let words: Vec<&str> = command.split_whitespace().collect();
    let environment: Vec<(String, String)> = unit(&here, "Environment")
        .iter()
        .map(|setting| setting.split_once('=').unwrap())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let taken = unit(&service, "SuccessExitStatus").pop().unwrap().parse().unwrap();
    assert_one_report(&host, || host.start(&words, &environment), taken);
    assert_no_residue(&server, &[]);
}

fn yaml(name: &str) -> Yaml {
    YamlLoader::load_from_str(&sample(name)).unwrap().remove(0)
}

fn words(list: &Yaml) -> Vec<&str> {
    list.as_vec().unwrap().iter().map(|word| word.as_str().expect("a text")).collect()
}

#[test]
fn the_cron_job_of_kubernetes_runs_one_report() {
    let server = RedisServer::start();
    let host = Host::new(&server, &[("make-report", "")]);
    let job = yaml("cronjob.yaml");
    assert_eq!((job["kind"].as_str(), job["apiVersion"].as_str()), (Some("CronJob"), Some("batch/v1")));
    let pod = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    assert_eq!(pod["restartPolicy"].as_str(), Some("Never"));
    let container = &pod["containers"][0];
    let variable = |variable: &Yaml| {
        let secret = &variable["valueFrom"]["secretKeyRef"]["key"];
        let value = secret.as_str().map_or(variable["value"].as_str(), |_| Some(ADDRESSES[0]));
        (variable["name"].as_str().unwrap().to_owned(), value.unwrap().to_owned())
    };
    let environment: Vec<_> = container["env"].as_vec().unwrap().iter().map(variable).collect();
    assert_one_report(&host, || host.start(&words(&container["command"]), &environment), 0);
    assert_no_residue(&server, &[]);
}

/// Of the three workers of the compose file one works, and the next one takes over.
#[test]
fn one_of_the_compose_files_three_workers_works() {
    let services = &yaml("compose.yaml")["services"];
    let mut builder = RedisServer::builder();
    for setting in words(&services["redis"]["command"])[1..].chunks(2) {
        builder = builder.arg(setting[0].trim_start_matches('-'), setting[1]);
    }
    let server = builder.start();
    let host = Host::new(&server, &[("work", "echo $$ > $(dirname $0)/../pid; exec sleep 1000")]);
    let worker = &services["worker"];
    let environment: Vec<_> = worker["environment"]
        .as_hash()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.as_str().unwrap().to_owned(), value.as_str().unwrap().to_owned()))
        .collect();
    let ours = lock(&server, "worker");
    let mut workers = Vec::new();
    for waiting in 0..worker["deploy"]["replicas"].as_i64().unwrap() {
        workers.push(host.start(&words(&worker["command"]), &environment));
        eventually("one works", || host.log().len() == 1);
        wait_for_queue(&ours, waiting.cast_unsigned());
    }
    assert_eq!(workers.len(), 3);
    let lease = ours.admin().inspect().unwrap().holder().unwrap().lease_left.unwrap();
    assert!(lease <= Duration::from_secs(10), "{lease:?}");

    // The death of a container: all its processes at once.
    let killed = workers.remove(0);
    killed.signal("STOP");
    let process = process_in(&host.dir.file("pid"));
    let group = getpgid(Some(Pid::from_raw(process.cast_signed()))).unwrap();
    killpg(group, Signal::SIGKILL).unwrap();
    drop(killed);
    eventually("the next takes over when the lease is over", || host.log().len() == 2);
    // The end of a container, those that wait first.
    for mut worker in workers.into_iter().rev() {
        worker.signal("TERM");
        assert_eq!(worker.status().signal(), Some(15));
    }
    assert_eq!(host.log(), ["work", "work"]);
    assert_no_residue(&server, &[]);
}
