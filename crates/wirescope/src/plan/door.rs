//! The door to the network, as meant: whom the run believes that asks for others, and the door that it begins itself.

use super::Look;
use super::faults::{Faults, omit_it};
use super::rights::{known_user, may_be_user};
use crate::args::RunArgs;
use crate::serve::{self, NOBODY, SERVE_USER, TlsFlags};
use scope_api::Role;
use scope_fault::{Fault, Setting, sentence};
use scope_rights::User;

/// What doors may do, and the one that ends with the run.
#[derive(Clone, Debug)]
pub struct DoorPlan {
    /// The user that a door is; `None`: the run's own.
    pub user: Option<User>,
    /// What others may do through it at most.
    pub role: Role,
    /// The command line of the one that the run begins, behind `serve --control PATH`.
    pub beside: Option<Vec<std::ffi::OsString>>,
}

/// What the flags of the run say.
pub fn plan(args: &RunArgs, look: Look<'_>, faults: &mut Faults<'_>) -> DoorPlan {
    let role = Role::of(&args.serve_role).unwrap_or_else(|| {
        let fault = Fault::of("serve-role").value(&args.serve_role, "is no role");
        let words: Vec<&str> = Role::ALL.iter().map(|role| role.word()).collect();
        faults.add(fault.remedy(format!("write one of: {}", words.join(", "))));
        Role::Viewer
    });
    // Who is there is a matter of the machine.
    let user = match (&args.serve_user, look == Look::Machine) {
        (Some(text), true) => known_user("serve-user", text).map_err(|fault| faults.add(fault)).ok(),
        // A run that isn't root's begins a door as the same user. One that is refused asks nobody for users: that may
        // open sockets.
        (None, true) if args.listen.is_some() && User::current().uid != 0 || !faults.is_empty() => None,
        (None, true) => User::named(SERVE_USER).ok().flatten(),
        (Some(text), false) => {
            if let Err(fault) = may_be_user("serve-user", text) {
                faults.add(fault);
            }
            None
        }
        (None, false) => None,
    };
    if user.as_ref().is_some_and(|user| user.uid == NOBODY) {
        let fault = Fault::of("serve-user").cause("nobody is nobody in particular, whom no run believes");
        faults.add(fault.remedy(format!("make a user: useradd --system {SERVE_USER}")));
    }
    DoorPlan { beside: beside(args, faults), user, role }
}

fn beside(args: &RunArgs, faults: &mut Faults<'_>) -> Option<Vec<std::ffi::OsString>> {
    let Some(listen) = &args.listen else {
        let given = [
            ("tokens", args.tokens.is_some()),
            ("tls-cert", args.tls_cert.is_some()),
            ("tls-key", args.tls_key.is_some()),
            ("tls-self-signed", args.tls_self_signed),
            ("tls-client-ca", args.tls_client_ca.is_some()),
            ("tls-client-crl", args.tls_client_crl.is_some()),
            ("host", !args.host.is_empty()),
        ];
        for (key, _) in given.into_iter().filter(|(_, given)| *given) {
            let listen = Setting::of("listen").example("ADDR:PORT");
            let remedy = sentence!["give an address: ", listen, ", or ", omit_it()];
            faults.add(Fault::of(key).cause("there is no door to the network").remedy(remedy));
        }
        return None;
    };
    if let Err(fault) = serve::address(listen) {
        faults.add(fault);
    }
    let tls = TlsFlags {
        cert: args.tls_cert.as_deref(),
        key: args.tls_key.as_deref(),
        self_signed: args.tls_self_signed,
        client_ca: args.tls_client_ca.as_deref(),
        client_crl: args.tls_client_crl.as_deref(),
    };
    if let Err(fault) = serve::tls(&tls) {
        faults.add(fault);
    }
    let Some(tokens) = &args.tokens else {
        let fault = Fault::of("tokens").cause("a door to the network needs a file of tokens").missing();
        let file = Setting::of("tokens").example("FILE");
        faults.add(fault.remedy(sentence!["name one: ", file, "; wirescope token add makes it"]));
        return None;
    };
    if args.control.as_deref() == Some("off") {
        let fault = Fault::of("listen").with_value(listen).cause("the run has no control socket");
        let control = Setting::of("control").example("PATH");
        faults.add(fault.remedy(sentence!["give one: ", control, ", or ", omit_it()]));
    }
    let mut words = vec!["--listen".into(), listen.into(), "--tokens".into(), tokens.into()];
    for (flag, path) in [
        ("--tls-cert", &args.tls_cert),
        ("--tls-key", &args.tls_key),
        ("--tls-client-ca", &args.tls_client_ca),
        ("--tls-client-crl", &args.tls_client_crl),
    ] {
        words.extend(path.iter().flat_map(|path| [flag.into(), path.into()]));
    }
    words.extend(args.tls_self_signed.then(|| "--tls-self-signed".into()));
    words.extend(args.host.iter().flat_map(|host| ["--host".into(), host.into()]));
    words.extend(["--log-format".into(), args.log_format.clone().into()]);
    Some(words)
}
