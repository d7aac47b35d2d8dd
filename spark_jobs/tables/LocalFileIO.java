/**
 * Writes local files without Hadoop, which starts a chmod process for each of them: that took half of the
 * processor time of a commit. Everything else is Iceberg's.
 */
public class LocalFileIO extends org.apache.iceberg.io.ResolvingFileIO {
  public org.apache.iceberg.io.OutputFile newOutputFile(String location) {
    return location.startsWith("file:") ? new LocalFile(location) : super.newOutputFile(location);
  }

  /** A file that keeps the spelling of its location: it becomes part of the table's metadata. */
  private static class LocalFile implements org.apache.iceberg.io.OutputFile {
    private final String location;
    private final org.apache.iceberg.io.OutputFile file;

    LocalFile(String location) {
      this.location = location;
      String path = location.substring("file:".length());
      this.file = org.apache.iceberg.Files.localOutput(path.startsWith("//") ? path.substring(2) : path);
    }

    public org.apache.iceberg.io.PositionOutputStream create() {
      return file.create();
    }

    public org.apache.iceberg.io.PositionOutputStream createOrOverwrite() {
      return file.createOrOverwrite();
    }

    public String location() {
      return location;
    }

    public org.apache.iceberg.io.InputFile toInputFile() {
      return file.toInputFile();
    }
  }
}
