// Package config turns one TOML file into the daemon's typed settings: the
// defaults, then the file, then what the command line says. It knows every key;
// an unknown one is an error that names it. Engine sections stay raw: only
// cmd/sandboxd knows engines.
package config
