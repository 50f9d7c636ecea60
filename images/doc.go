// Package images describes the file trees that sandboxes run in.
//
// It owns what belongs into an image and what does not. So far there is one kind,
// the host image ([Host]): the machine's own Python, taken apart into the
// interpreter, its standard library, its site packages and exactly the shared
// libraries that they load, with a made /etc. An image is data; an engine mounts
// it.
//
// It must never put anything else of the host into an image: no home directory,
// no /var, no shell, no real /etc. It must never mount, and must treat library
// files as hostile input: sizes and counts are bounded, a broken file is reported
// and left out.
//
// Proven by TestHost_RunsPythonByChroot (the tree works and holds nothing else)
// and TestClosure_FollowsSearchRules.
package images
