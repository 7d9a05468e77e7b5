/* A folder without sources yet. */ typedef int tfm_empty_folder;
