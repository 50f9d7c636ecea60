// Package store keeps images: file trees by the digest of their content, with
// what is known of them, and names for them.
//
//	DIR/trees/HEX/tree         the root file system
//	DIR/trees/HEX/record.json  what is known of it
//	DIR/index.json             names, and when images were used
//	DIR/tmp                    imports under way and trees being removed
//
// An image comes into trees by one rename, after everything of it was written
// out, and leaves by one. So what is in trees is whole whenever the daemon or
// the machine stops, and what is in tmp when a store is opened is rubbish.
//
// A tree is read-only to everybody once it has its digest. The package must never
// run anything of an image, nor follow its links on the machine's own file
// system; it must never remove an image in use.
//
// Lock order: Store.mu alone. Imports do not hold it while they unpack.
//
// Proven by TestImport_IsWholeAfterKills, TestGC_KeepsWhatIsInUse and
// TestImport_RefusesImagesWithoutPython.
package store
